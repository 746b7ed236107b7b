#include "model/diagnose/pieces.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace tailor::diagnose {

using nlohmann::json;
using nlohmann::ordered_json;

Result<PieceStore> PieceStore::open(const std::string& folder, const ordered_json& settings) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return error(errno_status(failure.value(), "create", folder));
  PieceStore store(folder, sha256_hex(settings.dump()));
  const ordered_json kept = {{"hash", store.hash_}, {"settings", settings}};
  TAILOR_RETURN_IF_ERROR(write_file_atomic(folder + "/settings.json", kept.dump(2) + "\n"));
  return store;
}

std::optional<json> PieceStore::find(const std::string& name) const {
  const auto text = read_file(path_of(name));
  if (!text) return std::nullopt;
  auto value = parse_json(*text);
  if (!value || !value->is_object()) return std::nullopt;
  const auto settings = value->find("settings");
  const auto piece = value->find("piece");
  if (settings == value->end() || piece == value->end() || *settings != json(hash_)) {
    return std::nullopt;
  }
  return std::move(*piece);
}

Status PieceStore::put(const std::string& name, const ordered_json& piece) const {
  const ordered_json kept = {{"settings", hash_}, {"piece", piece}};
  return write_file_atomic(path_of(name), kept.dump() + "\n");
}

}  // namespace tailor::diagnose
