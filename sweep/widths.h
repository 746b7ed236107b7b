// Widths that a file gives itself: [[24, 16], [16, 8]], one list a layer with one width a sub-MLP,
// or [24, 16] where every layer has one. As a value of a Point they are text, "[[24,16],[16,8]]".
// Internal to sweep/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "model/shape/architecture.h"

namespace tailor::sweep {

/// "[[24,16],[16,8]]".
std::string widths_to_text(const std::vector<shape::LayerWidths>& widths);
/// Reads it back. Errors: kInvalidArgument with what is allowed.
Result<std::vector<shape::LayerWidths>> widths_from_text(std::string_view text);
/// Empty: the mistake was noted in the document.
std::vector<shape::LayerWidths> read_widths(const ConfigValue& value);

}  // namespace tailor::sweep
