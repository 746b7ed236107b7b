// CheckpointFiles: a checkpoint folder as a list of files with sizes and hashes, from its manifest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::agent {

struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;  ///< 64 hex digits
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

/// The files that FOLDER/manifest.json names, and the manifest itself, whose hash is `sha256`.
/// Sizes are those on disk; the hashes of the files are the manifest's word and are not looked at.
/// Errors: kNotFound (a file is missing), kDataLoss (another manifest, or none that is understood).
Result<std::vector<CheckpointFile>> checkpoint_files(const std::string& folder,
                                                     std::string_view sha256);

/// The step of the newest folder in `checkpoints` that has a number for a name (whole, by the
/// trainers' rule; not verified); -1 = none.
std::int64_t newest_step(const std::string& checkpoints);

}  // namespace tailor::agent
