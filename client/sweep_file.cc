#include "client/sweep_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "client/context.h"

namespace tailor::client {

SweepFile load_sweep_file(const std::string& path) {
  SweepFile file;
  file.text = require(read_file(path, sweep::kSweepFileBytesMax + 1));
  // The folder as the path says, also where the file itself is a symbolic link.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  file.base_dir = absolute_path(folder.empty() ? "." : folder);
  if (!is_valid_utf8(file.base_dir) || !is_valid_utf8(path)) {
    throw Failure(
        Exit::kUsage,
        fmt::format(
            "{}: the name of the file or of a folder above it is no UTF-8 text, and a sweep "
            "keeps it as text; rename it, or copy the file elsewhere",
            path));
  }
  file.spec = require(sweep::parse(file.text, path, file.base_dir));
  return file;
}

}  // namespace tailor::client
