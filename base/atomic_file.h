// A file that is there whole or not at all, made bit by bit.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tailor {

/// write_file_atomic (base/file.h) for a content that is not all there yet: a temporary file beside
/// `path`, which takes its place on `commit` and is gone without it. Threads: one.
class AtomicFile {
 public:
  /// Errors: those of write_file_atomic.
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();

  /// Appends.
  Status write(std::string_view content);
  /// Once. `durable` as in write_file_atomic.
  Status commit(bool durable = true);

 private:
  AtomicFile(int descriptor, std::string path, std::string temporary)
      : descriptor_(descriptor), path_(std::move(path)), temporary_(std::move(temporary)) {}
  int descriptor_;  // -1: committed or moved from
  std::string path_;
  std::string temporary_;
};

}  // namespace tailor
