// Finished pieces of a long measurement, kept in a folder so that a run that was killed goes on
// where it stood.
//
//   FOLDER/settings.json    what everything was measured with, and its hash
//   FOLDER/NAME.json        {"settings": HASH, "piece": ...}, written atomically
//
// A piece counts only while its hash is that of the settings; others are measured again and
// replaced. A torn or foreign file is no piece. Threads: one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/status.h"

namespace tailor::diagnose {

class PieceStore {
 public:
  /// Makes the folder and writes the settings. Errors: those of writing.
  static Result<PieceStore> open(const std::string& folder, const nlohmann::ordered_json& settings);

  /// nullopt when it is not there, or was measured with other settings.
  std::optional<nlohmann::json> find(const std::string& name) const;
  Status put(const std::string& name, const nlohmann::ordered_json& piece) const;

  const std::string& folder() const { return folder_; }
  /// SHA-256 of the settings.
  const std::string& hash() const { return hash_; }

 private:
  PieceStore(std::string folder, std::string hash)
      : folder_(std::move(folder)), hash_(std::move(hash)) {}
  std::string path_of(const std::string& name) const { return folder_ + "/" + name + ".json"; }

  std::string folder_, hash_;
};

}  // namespace tailor::diagnose
