// See checkpoint_files.h.
#include "worker/agent/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace tailor::agent {

namespace fs = std::filesystem;

Result<std::vector<CheckpointFile>> checkpoint_files(const std::string& folder,
                                                     std::string_view sha256) {
  const std::string path = folder + "/manifest.json";
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, 16 << 20));
  if (sha256_hex(text) != sha256) {
    return error(Code::kDataLoss, path + " is not the manifest that was reported");
  }
  const auto manifest = parse_json(text);
  if (!manifest) return error(Code::kDataLoss, path + ": " + manifest.error().message());
  const auto listed = manifest->is_object() ? manifest->find("files") : manifest->end();
  if (!manifest->is_object() || listed == manifest->end() || !listed->is_object()) {
    return error(Code::kDataLoss, path + " names no files");
  }
  std::vector<CheckpointFile> files = {{"manifest.json", text.size(), std::string(sha256)}};
  for (const auto& [name, entry] : listed->items()) {
    // {"bytes": N, "sha256": "..."}, or the hash alone.
    const auto& hash = entry.is_object() && entry.contains("sha256") ? entry.at("sha256") : entry;
    if (!hash.is_string() || name.find('/') != std::string::npos || name == "..") {
      return error(Code::kDataLoss, fmt::format("{}: the entry of {} has no SHA-256", path, name));
    }
    std::error_code failure;
    const std::uint64_t bytes = fs::file_size(folder + "/" + name, failure);
    if (failure) return error(errno_status(failure.value(), "measure", folder + "/" + name));
    files.push_back({name, bytes, hash.get<std::string>()});
  }
  return files;
}

std::int64_t newest_step(const std::string& checkpoints) {
  std::int64_t newest = -1;
  std::error_code failure;
  for (fs::directory_iterator it(checkpoints, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    std::int64_t step = -1;
    const auto [at, wrong] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (wrong == std::errc() && at == name.data() + name.size()) newest = std::max(newest, step);
  }
  return newest;
}

}  // namespace tailor::agent
