// ARCH.toml: one architecture in the keys of [architecture], for `tailor shape` and
// `tailor-trainer bench`.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/shape/architecture.h"
#include "sweep/spec.h"

namespace tailor::sweep {

/// Reads the keys of [architecture], at the top of the file or in that table, and also
/// `widths = [[d_h, ...], ...]`, one list a layer, in place of layers, ffn.k, ffn.d_h and schedule.
/// Errors: kInvalidArgument "FILE:LINE:COLUMN: ...".
Result<shape::Architecture> parse_architecture_toml(std::string_view text, const std::string& file);

/// The architecture that a complete set of keys describes, without any budget.
/// Errors: kInvalidArgument / kOutOfRange naming the key.
Result<shape::Architecture> build_architecture(const Point& keys);

}  // namespace tailor::sweep
