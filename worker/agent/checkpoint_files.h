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

/// Reads all of a checkpoint: every file is there with the size and the SHA-256 that its manifest
/// names. Errors: kNotFound (a file is missing), kDataLoss (damaged), the system's reason.
Status verify_checkpoint_files(const std::string& folder);

struct CheckpointFolder {
  std::int64_t step = 0;
  std::string path;
  friend bool operator==(const CheckpointFolder&, const CheckpointFolder&) = default;
};
/// The folders in `checkpoints` that have a number for a name (whole, by the trainers' rule; not
/// verified), the newest first.
std::vector<CheckpointFolder> checkpoints_in(const std::string& checkpoints);

/// The name that a damaged folder is given, out of the way of whole ones.
inline constexpr std::string_view kDamaged = ".damaged";
/// What a folder's name begins with while it is being fetched.
inline constexpr std::string_view kFetching = ".fetch-";
/// Puts `folder` aside under such a name; an older one of that name goes. Nothing happens when
/// there is no `folder`.
Status put_aside(const std::string& folder);

}  // namespace tailor::agent
