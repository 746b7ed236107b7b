// See checkpoint_files.h.
#include "worker/agent/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace tailor::agent {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kManifestBytesMax = 16 << 20;

struct Listed {
  CheckpointFile file;                 // bytes: on disk
  std::optional<std::uint64_t> bytes;  // as the manifest says
};

/// What a manifest names, and how large it is on disk.
Result<std::vector<Listed>> listed_files(const std::string& folder, const std::string& text) {
  const std::string path = folder + "/manifest.json";
  const auto manifest = parse_json(text);
  if (!manifest) return error(Code::kDataLoss, path + ": " + manifest.error().message());
  const auto listed = manifest->is_object() ? manifest->find("files") : manifest->end();
  if (!manifest->is_object() || listed == manifest->end() || !listed->is_object()) {
    return error(Code::kDataLoss, path + " names no files");
  }
  std::vector<Listed> files;
  for (const auto& [name, entry] : listed->items()) {
    // {"bytes": N, "sha256": "..."}, or the hash alone.
    const auto& hash = entry.is_object() && entry.contains("sha256") ? entry.at("sha256") : entry;
    if (!hash.is_string() || name.find('/') != std::string::npos || name == "..") {
      return error(Code::kDataLoss, fmt::format("{}: the entry of {} has no SHA-256", path, name));
    }
    std::error_code failure;
    const std::uint64_t bytes = fs::file_size(folder + "/" + name, failure);
    if (failure) return error(errno_status(failure.value(), "measure", folder + "/" + name));
    Listed one{{name, bytes, hash.get<std::string>()}, {}};
    if (entry.is_object() && entry.contains("bytes") && entry.at("bytes").is_number_unsigned()) {
      one.bytes = entry.at("bytes").get<std::uint64_t>();
    }
    files.push_back(std::move(one));
  }
  return files;
}

}  // namespace

Result<std::vector<CheckpointFile>> checkpoint_files(const std::string& folder,
                                                     std::string_view sha256) {
  const std::string path = folder + "/manifest.json";
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, kManifestBytesMax));
  if (sha256_hex(text) != sha256) {
    return error(Code::kDataLoss, path + " is not the manifest that was reported");
  }
  TAILOR_ASSIGN_OR_RETURN(std::vector<Listed> listed, listed_files(folder, text));
  std::vector<CheckpointFile> files = {{"manifest.json", text.size(), std::string(sha256)}};
  for (Listed& one : listed) files.push_back(std::move(one.file));
  return files;
}

Status verify_checkpoint_files(const std::string& folder) {
  TAILOR_ASSIGN_OR_RETURN(const std::string text,
                          read_file(folder + "/manifest.json", kManifestBytesMax));
  TAILOR_ASSIGN_OR_RETURN(const std::vector<Listed> listed, listed_files(folder, text));
  for (const Listed& one : listed) {  // sizes first: they cost nothing
    if (one.bytes.value_or(one.file.bytes) != one.file.bytes) {
      return {Code::kDataLoss, fmt::format("{}/{} has {} bytes, not {}", folder, one.file.name,
                                           one.file.bytes, *one.bytes)};
    }
  }
  for (const Listed& one : listed) {
    const std::string path = folder + "/" + one.file.name;
    TAILOR_ASSIGN_OR_RETURN(const std::string hash, sha256_file(path));
    if (hash != one.file.sha256) {
      return {Code::kDataLoss, path + " has not the SHA-256 that its manifest names"};
    }
  }
  return Status::ok();
}

std::vector<CheckpointFolder> checkpoints_in(const std::string& checkpoints) {
  std::vector<CheckpointFolder> found;
  std::error_code failure;
  for (fs::directory_iterator it(checkpoints, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    std::int64_t step = -1;
    const auto [at, wrong] = std::from_chars(name.data(), name.data() + name.size(), step);
    const bool is_number = wrong == std::errc() && at == name.data() + name.size();
    if (is_number && step >= 0) found.push_back({step, it->path().string()});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

Status put_aside(const std::string& folder) {
  const std::string aside = folder + std::string(kDamaged);
  std::error_code failure;
  if (!fs::exists(folder, failure)) return Status::ok();
  fs::remove_all(aside, failure);
  fs::rename(folder, aside, failure);
  return failure ? errno_status(failure.value(), "put aside", folder) : Status::ok();
}

}  // namespace tailor::agent
