// A sweep file as commands take it: its text, its folder and what it says.
#pragma once

#include <string>

#include "sweep/spec.h"

namespace tailor::client {

struct SweepFile {
  std::string text;
  std::string base_dir;  ///< absolute folder of the file: relative data paths start there
  sweep::Spec spec;
};

/// Reads and parses `path`. Throws Failure: a file that is not there or not valid, a path that is
/// not UTF-8 (it is stored and sent as text).
SweepFile load_sweep_file(const std::string& path);

}  // namespace tailor::client
