// The table of operators against what is registered, and every combination of types that it lists,
// or does not, against values in double.
#include "model/kernels/op_table.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "model/kernels/linear.h"
#include "model/kernels/op_check.h"
#include "model/kernels/ops.h"
#include "tests/model/kernels/op_calls.h"

namespace tailor::kernels {
namespace {

using test::Drawn;
using test::Letters;

TEST(OpTableTest, TheDispatcherHasTheOperatorsOfTheTableAndNoOthers) {
  std::set<std::string> wanted;
  for (const Operator& line : kOperators) wanted.insert(line.name);
  std::set<std::string> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string text = name.name;
    if (text.starts_with("tailor::")) found.insert(text.substr(8));
  }
  EXPECT_EQ(found, wanted);
  for (const Operator& line : kOperators) {
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("tailor::" + std::string(line.name)).c_str(), "");
    EXPECT_TRUE(handle.hasKernelForDispatchKey(c10::DispatchKey::CPU)) << line.name;
    EXPECT_EQ(handle.hasKernelForDispatchKey(c10::DispatchKey::Meta), !line.cpu_only) << line.name;
    // No slow path that takes anything.
    EXPECT_FALSE(handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))
        << line.name;
    // Its tensors are the operands of the line, in order.
    std::vector<std::string> tensors;
    for (const c10::Argument& argument : handle.schema().arguments()) {
      if (argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
        tensors.push_back(argument.name());
      }
    }
    std::vector<std::string> operands;
    for (const Operand& operand : inputs_of(line)) operands.emplace_back(operand.name);
    EXPECT_EQ(tensors, operands) << line.name;
    EXPECT_EQ(handle.schema().returns().size(), outputs_of(line).size()) << line.name;
  }
}

TEST(OpTableTest, EveryListedCombinationGivesTheValuesOfTheReference) {
  test::expect_every_listed_call_right(at::kCPU);
}

TEST(OpTableTest, EveryListedCombinationTakesEveryLayout) {
  test::expect_every_layout_right(at::kCPU);
}

TEST(OpTableTest, EveryListedCombinationHasItsSizesAndTypesOnTheMetaLevel) {
  for (const Operator& line : kOperators) {
    if (line.cpu_only) continue;
    for (const Combination& combination : combinations_of(line)) {
      for (const auto& [size_name, sizes] : test::all_sizes()) {
        for (const bool optional : {true, false}) {
          SCOPED_TRACE(testing::Message() << line.name << " " << size_name << " " << optional);
          Drawn drawn =
              test::draw(line, test::input_types(line, combination),
                         test::result_type(line, combination), sizes, optional, at::kMeta);
          test::expect_listed(line, combination, test::call(line.name, drawn), drawn.letters);
        }
      }
    }
  }
}

TEST(OpTableTest, EveryOtherCombinationIsRefusedInTheSameWordsOnEveryDevice) {
  test::expect_every_other_call_refused(at::kCPU);
  test::expect_every_other_call_refused(at::kMeta);
}

TEST(OpTableTest, ARefusalNamesTheOperatorItsTypesAndWhatItTakes) {
  try {
    at::Tensor out = at::randn({2, 2});
    op::product_(out, std::nullopt, at::randn({2, 3}), at::randn({3, 2}));
    ADD_FAILURE() << "not refused";
  } catch (const c10::NotImplementedError& failure) {
    EXPECT_STREQ(failure.what_without_backtrace(),
                 "tailor::product_ out f32, a f32, b f32 is not for these types; it takes out f32, "
                 "base f32, a bf16, b bf16 (model/kernels/op_table.h)");
  }
  try {
    op::rms_norm(at::randn({2, 3}), at::randn({3}).to(at::kBFloat16), 1e-5, at::kHalf);
    ADD_FAILURE() << "not refused";
  } catch (const c10::NotImplementedError& failure) {
    EXPECT_EQ(std::string(failure.what_without_backtrace())
                  .find("tailor::rms_norm x f32, weight bf16 -> y another type is not for these "
                        "types; it takes x f32, weight f32 -> y f32, rstd f32; "),
              0u)
        << failure.what_without_backtrace();
  }
}

TEST(OpTableTest, OperatorsOfTheCpuAloneAreRefusedElsewhere) {
  for (const Operator& line : kOperators) {
    if (!line.cpu_only) continue;
    const Combination& combination = combinations_of(line)[0];
    Drawn drawn = test::draw(line, test::input_types(line, combination), Type::f32,
                             test::all_sizes().front().second, true, at::kMeta);
    try {
      test::call(line.name, drawn);
      ADD_FAILURE() << line.name << " ran";
    } catch (const c10::NotImplementedError& failure) {
      EXPECT_NE(std::string(failure.what()).find(line.name), std::string::npos);
    }
  }
}

TEST(OpTableTest, OperandsOfOtherSizesAreRefusedByName) {
  const Letters sizes = test::all_sizes().front().second;
  for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kMeta)}) {
    for (const Operator& line : kOperators) {
      const Combination& combination = combinations_of(line)[0];
      const auto operands = inputs_of(line);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        // A lone operand of any even size is as good as another.
        if (operands.size() == 1) continue;
        Drawn drawn = test::draw(line, test::input_types(line, combination),
                                 test::result_type(line, combination), sizes, true, device);
        at::Tensor& x = drawn.inputs[i];
        // A narrower row; fewer rows where a vocabulary may have any size.
        const std::int64_t dim = std::string_view(operands[i].name) == "logits" ? 0 : x.dim() - 1;
        x = x.narrow(dim, 0, x.size(dim) - 1);
        try {
          test::call(line.name, drawn);
          ADD_FAILURE() << line.name << " took a short " << operands[i].name;
        } catch (const c10::Error& failure) {
          EXPECT_NE(std::string(failure.what_without_backtrace()).find(line.name),
                    std::string::npos)
              << failure.what_without_backtrace();
        }
      }
    }
  }
  EXPECT_THROW(op::swiglu(at::randn({4, 7})), c10::Error);  // no half of 7
  EXPECT_THROW(op::swiglu(at::randn({8})), c10::Error);
  EXPECT_THROW(op::rope_split(at::randn({6, 20}), at::randn({3, 2}), at::randn({3, 2}), 2, 2, 1),
               c10::Error);  // (2 + 2) * 4 = 16 columns
}

// The product of bf16 factors: fp32 throughout where the CPU widens, as on a GPU.
TEST(OpTableTest, WidenedProductsAreThoseOfFp32) {
  const Bf16ProductsAs widened(false);
  const at::Tensor a = at::randn({700, 33}).to(at::kBFloat16);
  const at::Tensor b = at::randn({33, 9}).to(at::kBFloat16);
  const at::Tensor base = at::randn({700, 9});
  at::Tensor out = at::zeros({700, 9});
  at::Tensor right = at::zeros({700, 9}, at::kDouble);
  op::product_(out, base, a, b);
  reference::product_(right, base.to(at::kDouble), a.to(at::kDouble), b.to(at::kDouble));
  EXPECT_LT(tailor::test::relative_difference(out, right), 1e-6);
}

// RMSNorm and its gradient written out in double from their definition, by the Jacobian
//   dy_i / dx_j = w_i (r [i = j] - x_i x_j r^3 / d),  r = 1 / sqrt(mean(x^2) + eps)
// and not by reference.cc's formula.
void expect_norm_by_its_jacobian(at::ScalarType x_type, at::ScalarType y_type) {
  const std::int64_t rows = 9;
  const std::int64_t d = 29;
  const double eps = 1e-6;
  const at::Tensor x = (at::randn({rows, d}) * 3).to(x_type);
  const at::Tensor w = at::randn({d});
  const at::Tensor g = at::randn({rows, d}).to(y_type);
  const at::Tensor skip = at::randn({rows, d}).to(x_type);
  const auto [y, rstd] = op::rms_norm(x, w, eps, y_type);
  const auto [gx, gw] = op::rms_norm_backward(g, x, w, rstd, skip);
  ASSERT_EQ(y.scalar_type(), y_type);
  ASSERT_EQ(gx.scalar_type(), x_type);
  ASSERT_EQ(gw.scalar_type(), at::kFloat);
  const at::Tensor xs = x.to(at::kDouble);
  const at::Tensor ws = w.to(at::kDouble);
  const at::Tensor gs = g.to(at::kDouble);
  const at::Tensor skips = skip.to(at::kDouble);
  const auto* xv = xs.const_data_ptr<double>();
  const auto* wv = ws.const_data_ptr<double>();
  const auto* gv = gs.const_data_ptr<double>();
  const auto* sv = skips.const_data_ptr<double>();
  at::Tensor y_right = at::zeros({rows, d}, at::kDouble);
  at::Tensor gx_right = at::zeros({rows, d}, at::kDouble);
  at::Tensor gw_right = at::zeros({d}, at::kDouble);
  auto* yr = y_right.mutable_data_ptr<double>();
  auto* gxr = gx_right.mutable_data_ptr<double>();
  auto* gwr = gw_right.mutable_data_ptr<double>();
  for (std::int64_t r = 0; r < rows; ++r, xv += d, gv += d, sv += d, yr += d, gxr += d) {
    double squares = 0;
    for (std::int64_t i = 0; i < d; ++i) squares += xv[i] * xv[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(d) + eps);
    for (std::int64_t i = 0; i < d; ++i) {
      yr[i] = xv[i] * scale * wv[i];
      gwr[i] += gv[i] * xv[i] * scale;
    }
    for (std::int64_t j = 0; j < d; ++j) {
      gxr[j] = sv[j];
      for (std::int64_t i = 0; i < d; ++i) {
        const double slope =
            (i == j ? scale : 0.0) - xv[i] * xv[j] * scale * scale * scale / static_cast<double>(d);
        gxr[j] += gv[i] * wv[i] * slope;
      }
    }
  }
  const auto rounding = [](at::ScalarType type) { return type == at::kFloat ? 2e-6 : 1.0 / 256; };
  EXPECT_LT(tailor::test::relative_difference(y, y_right), rounding(y_type));
  EXPECT_LT(tailor::test::relative_difference(gx, gx_right), rounding(x_type));
  EXPECT_LT(tailor::test::relative_difference(gw, gw_right), 2e-6);
}

TEST(OpTableTest, ANormFromBf16ToFp32IsItsDefinitionForwardAndBackward) {
  expect_norm_by_its_jacobian(at::kBFloat16, at::kFloat);
}

TEST(OpTableTest, NormsOfTheOtherTypesAreTheirDefinition) {
  expect_norm_by_its_jacobian(at::kFloat, at::kFloat);
  expect_norm_by_its_jacobian(at::kFloat, at::kBFloat16);
  expect_norm_by_its_jacobian(at::kBFloat16, at::kBFloat16);
}

}  // namespace
}  // namespace tailor::kernels
