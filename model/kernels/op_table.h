// The table of Tailor's operators: operands, shapes, and every combination of types that each
// takes.
//
// It is the one place where a combination is stated. From its lists are made the loops of the CPU
// for each instruction set (cpu_loops.h), their dispatch (ops_cpu.cc), the instances of the CUDA
// kernels (cuda/kernels.cu), and the registrations of all devices: what a list has, every device
// has, or it does not compile. A call with other types or shapes is refused by ops.cc before any
// device sees it, by one message for all of them (op_check.h). tests/model/kernels/op_walk_test.cc
// walks every published form and every option of a sweep file and looks each call up here;
// op_table_test.cc tries every combination, listed or not, on values.
//
// To add a combination: one CASE in a list. To add an operator: a name in TAILOR_OPERATORS, a line
// in kOperators, an implementation under that name in ops_cpu.cc, in ops.cc (shapes alone, for the
// meta level) and in cuda/plugin.cc.
//
// No LibTorch, no functions: this is also read by nvcc and by the loops that are compiled for one
// instruction set.
#pragma once

#include <cstdint>

// RMSNorm from X to Y; its gradient reads Y and writes X.
//   f32  f32    networks in fp32, `first_only`, and q and k where bf16 is multiplied in fp32
//   f32  bf16   the residual stream into bf16 products (pre-norm, the final norm)
//   bf16 f32    a bf16 product onto the residual stream (post-norm: OLMo 2, per_sub_post, Gemma)
//   bf16 bf16   q and k (OLMo 2, Gemma 3)
#define TAILOR_NORM_TYPES(CASE) CASE(f32, f32) CASE(f32, bf16) CASE(bf16, f32) CASE(bf16, bf16)
// One type X for all matrices of an operator.
#define TAILOR_ONE_TYPE(CASE) CASE(f32, f32) CASE(bf16, bf16)

// Operators of all devices, in the order of kOperators; and those of the CPU alone, in whose place
// a GPU takes LibTorch's: at::_fused_adamw_ (which reads the rate on the device), and
// at::embedding's gradient (which sorts the tokens).
// clang-format off
#define TAILOR_SHARED_OPERATORS(CASE)                                                      \
  CASE(rms_norm) CASE(rms_norm_backward) CASE(product_) CASE(swiglu) CASE(swiglu_backward) \
  CASE(rope_split) CASE(rope_merge) CASE(cross_entropy_) CASE(sum_squares)
// clang-format on
#define TAILOR_CPU_OPERATORS(CASE) CASE(adamw_) CASE(embed_backward_)
#define TAILOR_OPERATORS(CASE) TAILOR_SHARED_OPERATORS(CASE) TAILOR_CPU_OPERATORS(CASE)

namespace tailor::kernels {

#define TAILOR_CASE(NAME) NAME,
enum class Op : std::uint8_t { TAILOR_OPERATORS(TAILOR_CASE) };
#undef TAILOR_CASE

/// Types of values. In the table an operand has a fixed one, or X or Y, which a combination gives;
/// in a call an operand that is not there has `none`, one that is not known yet `any`, and one of a
/// type that no operator takes `other`.
enum class Type : std::uint8_t { none, f32, bf16, f64, i64, X, Y, any, other };

/// A tensor that an operator reads or writes. `shape`: sizes by letters, which stand for one number
/// in all operands of a call, with a factor where there is one ("n 2f"); "*" = any shape.
struct Operand {
  const char* name = nullptr;
  const char* shape = nullptr;
  Type type = Type::none;
  bool optional = false;
};

/// One choice of X and Y.
struct Combination {
  Type x = Type::none;
  Type y = Type::none;
};

inline constexpr int kInputsMax = 5;
inline constexpr int kOutputsMax = 3;
inline constexpr int kCombinationsMax = 4;

/// A line of the table. Inputs are in the order of the operator's schema; those changed in place
/// are inputs. Arrays end early where names are null and combinations are none.
struct Operator {
  const char* name = nullptr;
  bool cpu_only = false;
  Operand inputs[kInputsMax];
  Operand outputs[kOutputsMax];
  Combination combinations[kCombinationsMax];
};

#define TAILOR_CASE(X, Y) Combination{Type::X, Type::Y},
// Letters: n = B*T rows, d = width, f = hidden width, v = vocabulary, b = batch, t = time, h =
// heads, g = kv_heads, c = head_dim / 2, w = (h + 2g) 2c.
inline constexpr Operator kOperators[] = {
    {"rms_norm",
     false,
     {{"x", "n d", Type::X}, {"weight", "d", Type::f32, true}},
     {{"y", "n d", Type::Y}, {"rstd", "n", Type::f32}},
     {TAILOR_NORM_TYPES(TAILOR_CASE)}},
    {"rms_norm_backward",
     false,
     {{"grad", "n d", Type::Y},
      {"x", "n d", Type::X},
      {"weight", "d", Type::f32, true},
      {"rstd", "n", Type::f32},
      {"skip", "n d", Type::X, true}},
     {{"grad_x", "n d", Type::X}, {"grad_weight", "d", Type::f32, true}},
     {TAILOR_NORM_TYPES(TAILOR_CASE)}},
    // Sums in fp32 of products of bf16: the residual stream, gradients of weights, scores.
    {"product_",
     false,
     {{"out", "n m", Type::f32},
      {"base", "n m", Type::f32, true},
      {"a", "n k", Type::X},
      {"b", "k m", Type::X}},
     {},
     {{Type::bf16, Type::bf16}}},
    {"swiglu",
     false,
     {{"gate_up", "n 2f", Type::X}},
     {{"y", "n f", Type::X}},
     {TAILOR_ONE_TYPE(TAILOR_CASE)}},
    {"swiglu_backward",
     false,
     {{"grad", "n f", Type::X}, {"gate_up", "n 2f", Type::X}},
     {{"grad_gate_up", "n 2f", Type::X}},
     {TAILOR_ONE_TYPE(TAILOR_CASE)}},
    {"rope_split",
     false,
     {{"qkv", "n w", Type::X}, {"cos", "t c", Type::f32}, {"sin", "t c", Type::f32}},
     {{"q", "b h t 2c", Type::X}, {"k", "b g t 2c", Type::X}, {"v", "b g t 2c", Type::X}},
     {TAILOR_ONE_TYPE(TAILOR_CASE)}},
    {"rope_merge",
     false,
     {{"q", "b h t 2c", Type::X},
      {"k", "b g t 2c", Type::X},
      {"v", "b g t 2c", Type::X},
      {"cos", "t c", Type::f32},
      {"sin", "t c", Type::f32}},
     {{"qkv", "n w", Type::X}},
     {TAILOR_ONE_TYPE(TAILOR_CASE)}},
    {"cross_entropy_",
     false,
     {{"logits", "n v", Type::X}, {"targets", "n", Type::i64}},
     {{"losses", "n", Type::f64}},
     {TAILOR_ONE_TYPE(TAILOR_CASE)}},
    // The flat gradient: fp32 whatever the products are.
    {"sum_squares",
     false,
     {{"x", "*", Type::X}},
     {{"sum", "", Type::f64}},
     {{Type::f32, Type::f32}}},
    {"adamw_",
     true,
     {{"w", "p", Type::X},
      {"g", "p", Type::X},
      {"m", "p", Type::X},
      {"v", "p", Type::X},
      {"low", "p", Type::bf16, true}},
     {},
     {{Type::f32, Type::f32}}},
    {"embed_backward_",
     true,
     {{"sum", "v d", Type::X}, {"grad", "n d", Type::X}, {"tokens", "n", Type::i64}},
     {},
     {{Type::f32, Type::f32}}},
};
#undef TAILOR_CASE

}  // namespace tailor::kernels
