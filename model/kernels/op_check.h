// Whether a call is in the table of operators (op_table.h), and if not, what to say. No LibTorch.
//
// Functions take the table they look in, so that a test can take a line out and see it missed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model/kernels/op_table.h"

namespace tailor::kernels {

/// "f32", "bf16", "f64", "i64"; "none", "any", "another type" and X and Y as they are.
std::string_view type_name(Type type);

/// The line of operator `name` (without "tailor::"), or nullptr.
const Operator* find_operator(std::span<const Operator> table, std::string_view name);

/// Operands that a line has.
std::span<const Operand> inputs_of(const Operator& line);
std::span<const Operand> outputs_of(const Operator& line);
std::span<const Combination> combinations_of(const Operator& line);

/// The type of `operand` in one combination.
Type type_of(const Operand& operand, const Combination& combination);

/// The combination that a call has, or nullptr. One type for each operand of the line, in its
/// order; `any` agrees with all. Outputs may be left out (empty: not known yet).
const Combination* find_combination(const Operator& line, std::span<const Type> inputs,
                                    std::span<const Type> outputs);

/// A call in words: "rms_norm x bf16, weight f32 -> y f32, rstd f32".
std::string call_text(const Operator& line, std::span<const Type> inputs,
                      std::span<const Type> outputs);

/// Why a call that find_combination does not find is refused: names the operator, the types and
/// what it takes.
std::string refusal(const Operator& line, std::span<const Type> inputs,
                    std::span<const Type> outputs);

/// The sizes that the letters of a table's shapes stand for in one call.
class Sizes {
 public:
  /// True if `sizes` fit `shape`, whose letters without a number take theirs from it.
  bool fit(const char* shape, std::span<const std::int64_t> sizes);

 private:
  std::int64_t of_[26] = {};
  bool known_[26] = {};
};

}  // namespace tailor::kernels
