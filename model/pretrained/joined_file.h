// JoinedFile: one or more files read by position as if they were one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::pretrained {

/// Holds the descriptors. Movable. Threads: const functions from any.
class JoinedFile {
 public:
  /// REQUIRES: `paths` is not empty. Errors: kNotFound, kDataLoss (not a regular file), the
  /// system's reason.
  static Result<JoinedFile> open(const std::vector<std::string>& paths);

  JoinedFile(JoinedFile&& other) noexcept;
  JoinedFile& operator=(JoinedFile&& other) noexcept;
  ~JoinedFile();

  std::uint64_t size() const { return size_; }
  /// The first file's path, for messages.
  const std::string& path() const { return parts_.front().path; }
  /// REQUIRES: [position, position + size) lies within. Errors: kDataLoss when a file was cut
  /// meanwhile; the system's reason.
  Status read(std::uint64_t position, void* out, std::size_t size) const;

 private:
  struct Part {
    std::string path;
    int descriptor;
    std::uint64_t begin;
    std::uint64_t size;
  };
  JoinedFile() = default;
  std::vector<Part> parts_;
  std::uint64_t size_ = 0;
};

/// The files that `path` stands for, to be joined by their bytes: itself; for NAME.partNN all of
/// NAME.part* in its folder, in order; for a list with commas and shell patterns what they match.
/// Errors: kNotFound naming the pattern that matches nothing or the part that is missing.
Result<std::vector<std::string>> files_to_join(const std::string& path);

}  // namespace tailor::pretrained
