// Calls of any operator of model/kernels/op_table.h with drawn operands, and what each must give:
// the tests of the table, on the CPU and where a GPU is, are loops over its lines.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/kernels/op_check.h"
#include "model/kernels/ops.h"
#include "tests/model/support.h"

namespace tailor::kernels::test {

/// Sizes by the letters of the table. `n`, where an operator has b and t, and `w` follow from the
/// others.
using Letters = std::map<char, std::int64_t>;

inline Letters completed(Letters letters, std::string_view name) {
  if (name.starts_with("rope")) letters['n'] = letters['b'] * letters['t'];
  // The only matrix of v rows that are d wide: some GiB with the widest of both.
  if (name == "embed_backward_") letters['v'] = std::min<std::int64_t>(letters['v'], 64);
  letters['w'] = (letters['h'] + 2 * letters['g']) * 2 * letters['c'];
  return letters;
}

/// The usual sizes, sizes that no vector divides, none at all, and rows wider than any published
/// model's.
inline std::vector<std::pair<std::string, Letters>> all_sizes() {
  const Letters usual = {{'n', 37}, {'d', 48}, {'f', 24}, {'v', 64}, {'m', 24}, {'k', 40},
                         {'p', 80}, {'b', 2},  {'t', 5},  {'h', 4},  {'g', 2},  {'c', 8}};
  Letters odd = {{'n', 5},  {'d', 7}, {'f', 13}, {'v', 19}, {'m', 3}, {'k', 9},
                 {'p', 17}, {'b', 3}, {'t', 3},  {'h', 3},  {'g', 1}, {'c', 3}};
  Letters one = usual;
  for (auto& [letter, size] : one) size = 1;
  Letters empty = usual;
  for (const char letter : {'n', 'b', 'p'}) empty[letter] = 0;
  Letters no_terms = usual;  // of products
  no_terms['k'] = 0;
  Letters wide = usual;
  wide['n'] = 3;
  wide['d'] = 20004;
  wide['f'] = 30001;
  wide['v'] = 140003;
  return {{"usual", usual}, {"odd", odd},           {"one", one},
          {"empty", empty}, {"no terms", no_terms}, {"wide", wide}};
}

inline at::ScalarType scalar_of(Type type) {
  switch (type) {
    case Type::f32:
      return at::kFloat;
    case Type::bf16:
      return at::kBFloat16;
    case Type::f64:
      return at::kDouble;
    case Type::i64:
      return at::kLong;
    default:
      ADD_FAILURE() << "no tensor has type " << type_name(type);
      return at::kFloat;
  }
}

inline std::vector<std::int64_t> sizes_of(const char* shape, const Letters& letters) {
  if (shape[0] == '*') return {letters.at('n'), letters.at('d')};
  std::vector<std::int64_t> sizes;
  std::int64_t factor = 1;
  for (const char* at = shape; *at != '\0'; ++at) {
    if (*at == ' ') continue;
    if (*at >= '0' && *at <= '9') {
      factor = *at - '0';
      continue;
    }
    sizes.push_back(letters.at(*at) * factor);
    factor = 1;
  }
  return sizes;
}

/// Operands of a call; undefined where an optional one is absent.
struct Drawn {
  std::vector<at::Tensor> inputs;
  at::ScalarType result = at::kFloat;  ///< of the first output
  Letters letters;
};

/// Draws on the CPU, in double where values are real, then rounds to `types`.
inline Drawn draw(const Operator& line, const std::vector<Type>& types, Type result,
                  const Letters& sizes, bool with_optional, at::Device device) {
  Drawn drawn;
  drawn.result = scalar_of(result);
  drawn.letters = completed(sizes, line.name);
  const auto operands = inputs_of(line);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    at::Tensor& x = drawn.inputs.emplace_back();
    const std::string_view name = operands[i].name;
    if (operands[i].optional && !with_optional) continue;
    const auto shape = sizes_of(operands[i].shape, drawn.letters);
    if (operands[i].type == Type::i64) {
      x = at::randint(drawn.letters.at('v'), shape, at::kLong);
      if (name == "targets" && x.numel() > 2) x[1] = -100;
    } else {
      x = at::randn(shape, at::kDouble);
      if (std::string_view(line.name) == "adamw_" && name == "v") x = x.square();
      if (name == "rstd") x = x.abs() + 0.25;
      if (name == "cos") x = x.cos();
      if (name == "sin") x = x.sin();
    }
    x = x.to(scalar_of(types[i])).to(device);
  }
  return drawn;
}

constexpr double kScale = 0.125;
constexpr double kZLoss = 0.015625;

inline std::optional<at::Tensor> present(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
}

/// Calls operator `name`. What it gives: its outputs (undefined for a gain that was not there),
/// then the inputs that it changed.
inline std::vector<at::Tensor> call(std::string_view name, Drawn& drawn) {
  std::vector<at::Tensor>& in = drawn.inputs;
  const Letters& sizes = drawn.letters;
  if (name == "rms_norm") {
    const auto [y, rstd] = op::rms_norm(in[0], present(in[1]), 1e-5, drawn.result);
    return {y, rstd};
  }
  if (name == "rms_norm_backward") {
    const auto [gx, gw] =
        op::rms_norm_backward(in[0], in[1], present(in[2]), in[3], present(in[4]));
    return {gx, gw};
  }
  if (name == "product_") {
    op::product_(in[0], present(in[1]), in[2], in[3]);
    return {in[0]};
  }
  if (name == "swiglu") return {op::swiglu(in[0])};
  if (name == "swiglu_backward") return {op::swiglu_backward(in[0], in[1])};
  if (name == "rope_split") {
    const auto [q, k, v] =
        op::rope_split(in[0], in[1], in[2], sizes.at('b'), sizes.at('h'), sizes.at('g'));
    return {q, k, v};
  }
  if (name == "rope_merge") return {op::rope_merge(in[0], in[1], in[2], in[3], in[4])};
  if (name == "cross_entropy_") {
    const at::Tensor only = op::cross_entropy_(in[0], in[1], kScale, false, kZLoss);
    const at::Tensor losses = op::cross_entropy_(in[0], in[1], kScale, true, kZLoss);
    if (!losses.is_meta()) {
      EXPECT_TRUE(tailor::test::same_bits(only.cpu(), losses.cpu()));
    }
    return {losses, in[0]};
  }
  if (name == "sum_squares") return {op::sum_squares(in[0])};
  if (name == "adamw_") {
    op::adamw_(in[0], in[1], in[2], in[3], present(in[4]), 0.01, 0.9, 0.95, 1e-8, 0.1, 0.5, 3);
    return {in[0], in[2], in[3], in[4]};
  }
  if (name == "embed_backward_") {
    op::embed_backward_(in[0], in[1], in[2]);
    return {in[0]};
  }
  ADD_FAILURE() << "tests/model/kernels/op_calls.h does not know operator " << name;
  return {};
}

/// What `call` must give, in double on the CPU: by reference.cc, and where that has nothing by the
/// formula.
inline std::vector<at::Tensor> wanted(std::string_view name, const Drawn& drawn) {
  std::vector<at::Tensor> in;
  for (const at::Tensor& x : drawn.inputs) {
    const bool real = x.defined() && x.scalar_type() != at::kLong;
    in.push_back(!x.defined() ? x : real ? x.to(at::kCPU, at::kDouble).clone() : x.to(at::kCPU));
  }
  const Letters& sizes = drawn.letters;
  if (name == "rms_norm") {
    const auto [y, rstd] = reference::rms_norm(in[0], present(in[1]), 1e-5, at::kDouble);
    return {y, rstd};
  }
  if (name == "rms_norm_backward") {
    const auto [gx, gw] =
        reference::rms_norm_backward(in[0], in[1], present(in[2]), in[3], present(in[4]));
    return {gx, gw};
  }
  if (name == "product_") {
    reference::product_(in[0], present(in[1]), in[2], in[3]);
    return {in[0]};
  }
  if (name == "swiglu") return {reference::swiglu(in[0])};
  if (name == "swiglu_backward") return {reference::swiglu_backward(in[0], in[1])};
  if (name == "rope_split") {
    // Without sequences the reference cannot divide rows by them.
    if (sizes.at('b') == 0) {
      const auto none = [&](char heads) {
        return at::zeros({0, sizes.at(heads), sizes.at('t'), 2 * sizes.at('c')}, at::kDouble);
      };
      return {none('h'), none('g'), none('g')};
    }
    const auto [q, k, v] =
        reference::rope_split(in[0], in[1], in[2], sizes.at('b'), sizes.at('h'), sizes.at('g'));
    return {q, k, v};
  }
  if (name == "rope_merge") {
    if (sizes.at('b') == 0) return {at::zeros({0, sizes.at('w')}, at::kDouble)};
    return {reference::rope_merge(in[0], in[1], in[2], in[3], in[4])};
  }
  if (name == "cross_entropy_") {
    const at::Tensor losses = reference::cross_entropy_(in[0], in[1], kScale, true, kZLoss);
    return {losses, in[0]};
  }
  if (name == "sum_squares") return {reference::sum_squares(in[0])};
  if (name == "adamw_") {
    const at::Tensor g = in[1] * 0.5;
    const at::Tensor m = in[2] * 0.9 + g * 0.1;
    const at::Tensor v = in[3] * 0.95 + g * g * 0.05;
    const at::Tensor root = v.sqrt() / std::sqrt(1 - std::pow(0.95, 3)) + 1e-8;
    const at::Tensor w = in[0] * (1 - 0.01 * 0.1) - m / root * (0.01 / (1 - std::pow(0.9, 3)));
    return {w, m, v, in[4].defined() ? w : at::Tensor()};
  }
  if (name == "embed_backward_") return {in[0].index_add(0, in[2], in[1])};
  ADD_FAILURE() << "no formula for " << name;
  return {};
}

/// Relative to the largest value: bf16 keeps 8 bits, half a unit is 2^-9; a CPU that multiplies
/// bf16 rounds each product so before it adds.
inline double tolerance(std::string_view name, at::ScalarType type, at::Device device) {
  if (type == at::kBFloat16) return 1.0 / 128;
  return name == "product_" && device.is_cpu() ? 1.0 / 128 : 1e-5;
}

inline void expect_close(std::string_view name, const std::vector<at::Tensor>& got,
                         const std::vector<at::Tensor>& right, at::Device device) {
  ASSERT_EQ(got.size(), right.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), right[i].defined()) << "result " << i;
    if (!got[i].defined()) continue;
    ASSERT_EQ(got[i].sizes(), right[i].sizes()) << "result " << i;
    if (got[i].numel() == 0) continue;
    EXPECT_LT(tailor::test::relative_difference(got[i].cpu(), right[i]),
              tolerance(name, got[i].scalar_type(), device))
        << "result " << i;
  }
}

/// Outputs have the types and shapes of the line.
inline void expect_listed(const Operator& line, const Combination& combination,
                          const std::vector<at::Tensor>& got, const Letters& letters) {
  const auto outputs = outputs_of(line);
  ASSERT_GE(got.size(), outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!got[i].defined()) {
      EXPECT_TRUE(outputs[i].optional) << outputs[i].name;
      continue;
    }
    EXPECT_EQ(type_of(got[i].scalar_type()), type_of(outputs[i], combination)) << outputs[i].name;
    EXPECT_EQ(got[i].sizes(), at::IntArrayRef(sizes_of(outputs[i].shape, letters)))
        << outputs[i].name;
  }
}

/// The types of a line's inputs in one combination.
inline std::vector<Type> input_types(const Operator& line, const Combination& combination) {
  std::vector<Type> types;
  for (const Operand& operand : inputs_of(line)) types.push_back(type_of(operand, combination));
  return types;
}

/// Type of the first output, or f32 where there is none.
inline Type result_type(const Operator& line, const Combination& combination) {
  return outputs_of(line).empty() ? Type::f32 : type_of(outputs_of(line)[0], combination);
}

/// Every line with every combination that it lists, for all sizes, with and without its optional
/// operands, against double. Lines of the CPU alone are left out elsewhere.
inline void expect_every_listed_call_right(at::Device device) {
  for (const Operator& line : kOperators) {
    if (line.cpu_only && !device.is_cpu()) continue;
    for (const Combination& combination : combinations_of(line)) {
      for (const auto& [size_name, sizes] : all_sizes()) {
        for (const bool optional : {true, false}) {
          Drawn drawn = draw(line, input_types(line, combination), result_type(line, combination),
                             sizes, optional, device);
          SCOPED_TRACE(testing::Message() << line.name << " " << type_name(combination.x) << " "
                                          << type_name(combination.y) << ", sizes " << size_name
                                          << ", optional " << optional << " on " << device);
          const std::vector<at::Tensor> right = wanted(line.name, drawn);
          const std::vector<at::Tensor> got = call(line.name, drawn);
          expect_listed(line, combination, got, drawn.letters);
          expect_close(line.name, got, right, device);
        }
      }
    }
  }
}

/// The same values however operands lie in memory: rows of a wider matrix that start at an odd
/// element, and matrices turned.
inline void expect_every_layout_right(at::Device device) {
  for (const Operator& line : kOperators) {
    if (line.cpu_only && !device.is_cpu()) continue;
    const std::string_view name = line.name;
    for (const Combination& combination : combinations_of(line)) {
      for (const bool turned : {false, true}) {
        SCOPED_TRACE(testing::Message() << name << " " << type_name(combination.x) << " "
                                        << type_name(combination.y) << " turned " << turned);
        Drawn drawn = draw(line, input_types(line, combination), result_type(line, combination),
                           all_sizes().front().second, true, device);
        for (std::size_t i = 0; i < drawn.inputs.size(); ++i) {
          at::Tensor& x = drawn.inputs[i];
          // Buffers of the optimizer and kept gradients are dense.
          const bool buffer = name == "adamw_" || (name == "embed_backward_" && i == 0);
          if (buffer || x.dim() == 0) continue;
          const std::int64_t last = x.dim() - 1;
          if (turned) {
            if (x.dim() > 1) x = x.transpose(last, 0).contiguous().transpose(last, 0);
          } else {
            std::vector<std::int64_t> wider = x.sizes().vec();
            wider.back() += 6;
            const at::Tensor inside = at::zeros(wider, x.options()).narrow(last, 3, x.size(last));
            inside.copy_(x);
            x = inside;
          }
        }
        const std::vector<at::Tensor> right = wanted(name, drawn);
        expect_close(name, call(name, drawn), right, device);
      }
    }
  }
}

/// Every other choice of types is refused, and the message names the operator and the types.
inline void expect_every_other_call_refused(at::Device device) {
  const Letters sizes = all_sizes().front().second;
  const Type kinds[] = {Type::f32, Type::bf16, Type::f64};
  int refused = 0;
  const auto expect_refused = [&](const Operator& line, const std::vector<Type>& types,
                                  Type result) {
    std::vector<Type> results(outputs_of(line).size(), Type::any);
    // Callers choose the type of rms_norm's result alone.
    if (std::string_view(line.name) == "rms_norm") results[0] = result;
    if (find_combination(line, types, results) != nullptr) return;
    ++refused;
    Drawn drawn = draw(line, types, result, sizes, true, device);
    SCOPED_TRACE(call_text(line, types, results));
    try {
      call(line.name, drawn);
      ADD_FAILURE() << "not refused";
    } catch (const c10::NotImplementedError& failure) {
      const std::string said = failure.what_without_backtrace();
      EXPECT_EQ(said, refusal(line, types, results));
      EXPECT_NE(said.find(line.name), std::string::npos);
      for (std::size_t i = 0; i < types.size(); ++i) {
        const std::string named =
            std::string(inputs_of(line)[i].name) + " " + std::string(type_name(types[i]));
        EXPECT_NE(said.find(named), std::string::npos) << named << " in: " << said;
      }
    }
  };
  for (const Operator& line : kOperators) {
    for (const Type x : kinds) {
      for (const Type y : kinds) {
        const Combination combination{x, y};
        expect_refused(line, input_types(line, combination), result_type(line, combination));
      }
    }
    // One operand that does not go with the others.
    for (const Combination& combination : combinations_of(line)) {
      const std::vector<Type> types = input_types(line, combination);
      for (std::size_t i = 0; i < types.size(); ++i) {
        if (types[i] == Type::i64) continue;
        for (const Type other : kinds) {
          std::vector<Type> changed = types;
          changed[i] = other;
          expect_refused(line, changed, result_type(line, combination));
        }
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace tailor::kernels::test
