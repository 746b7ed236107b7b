// The list of FFN variants. A new one is a line here and a value of shape::FfnKind.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "model/ffn/ffn.h"

namespace tailor::ffn {
namespace {

constexpr std::array kVariants{
    FfnVariant{shape::FfnKind::kSwiglu, "swiglu", &make_swiglu},
    FfnVariant{shape::FfnKind::kHourglass, "hourglass", &make_hourglass},
};

}  // namespace

std::span<const FfnVariant> variants() { return kVariants; }

const FfnVariant& variant(shape::FfnKind kind) {
  const auto* found = std::find_if(kVariants.begin(), kVariants.end(),
                                   [&](const FfnVariant& line) { return line.kind == kind; });
  TAILOR_CHECK(found != kVariants.end());
  return *found;
}

}  // namespace tailor::ffn
