// Every published form and every option of a sweep file, in f32 and bf16: each operator that a
// training step or an evaluation calls, with its types, is in the table of the CPU and in that of
// CUDA (model/kernels/op_table.h).
//
// What a GPU would be given is walked on the meta level: its operators are those of every device
// but the CPU. What the CPU is given is run on it, with bf16 products made in bf16 and in fp32.
// Where a GPU is, cuda_kernels_test.cc takes the same walk on it.
//
// The options that choose operators or their types (family, ffn.kind and ffn.k, ffn.norm,
// norm_scaling, residual_scaling, precision, recompute) are walked in their full product; all
// options of [architecture] and [train] together, and all fields of net/form.h, pairwise: any two
// values of any two of them meet.
#include "tests/model/kernels/op_walk.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cstdio>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "model/kernels/linear.h"
#include "tests/model/kernels/op_choices.h"

namespace tailor::kernels {
namespace {

using test::Choice;
using test::OpCall;
using test::Record;

// LibTorch has the meta level of these in Python alone.
void fused_adamw_meta(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                      at::TensorList, at::TensorList, const at::Tensor&, double, double, double,
                      double, bool, bool, const std::optional<at::Tensor>&,
                      const std::optional<at::Tensor>&) {}
at::Tensor index_select_meta(const at::Tensor& x, std::int64_t dim, const at::Tensor& index) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = index.numel();
  return at::empty(sizes, x.options());
}
at::Tensor embedding_dense_backward_meta(const at::Tensor& grad, const at::Tensor&,
                                         c10::SymInt rows, c10::SymInt, bool) {
  return at::empty({rows.expect_int(), grad.size(-1)}, grad.options());
}
at::Tensor& logical_or_meta(const at::Tensor& x, const at::Tensor& y, at::Tensor& out) {
  out.resize_(at::infer_size(x.sizes(), y.sizes()));
  return out;
}
at::Tensor where_meta(const at::Tensor& which, const at::Tensor& x, const at::Tensor& y) {
  const auto sizes = at::infer_size(at::infer_size(which.sizes(), x.sizes()), y.sizes());
  return at::empty(sizes, x.options().dtype(at::result_type(x, y)));
}
at::Tensor& where_out_meta(const at::Tensor& which, const at::Tensor& x, const at::Tensor& y,
                           at::Tensor& out) {
  out.resize_(at::infer_size(at::infer_size(which.sizes(), x.sizes()), y.sizes()));
  return out;
}
TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("where.self_out", &where_out_meta);
  library.impl("logical_or.out", &logical_or_meta);
  library.impl("where.self", &where_meta);
  library.impl("_fused_adamw_.tensor_lr", &fused_adamw_meta);
  library.impl("index_select", &index_select_meta);
  library.impl("embedding_dense_backward", &embedding_dense_backward_meta);
}

struct Walked {
  Record cpu;
  Record cuda;  // by the meta level
  std::size_t choices = 0;
};

Walked walk_all(const std::vector<Choice>& choices) {
  Walked out;
  for (const Choice& choice : choices) {
    ++out.choices;
    test::walk(choice, at::kMeta, out.cuda);
    for (const bool multiplied : {true, false}) {
      if (!choice.bf16 && !multiplied) continue;
      const Bf16ProductsAs as(multiplied);
      test::walk(choice, at::kCPU, out.cpu);
    }
  }
  return out;
}

const Walked& walked() {
  static const Walked all = walk_all(test::all_choices());
  return all;
}

// The published families alone: every combination of the table is theirs already.
const Walked& walked_published() {
  static const Walked published = [] {
    std::set<std::string> types;
    return walk_all(test::published_choices(&types));
  }();
  return published;
}

std::string lines(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += "\n  " + text;
  return all;
}

TEST(OpWalkTest, EveryFormAndOptionFindsItsOperatorsOnTheCpuAndOnCuda) {
  EXPECT_GT(walked().choices, 500u);
  EXPECT_EQ(lines(test::missing(kOperators, walked().cpu, /*cpu=*/true)), "");
  EXPECT_EQ(lines(test::missing(kOperators, walked().cuda, /*cpu=*/false)), "");
}

TEST(OpWalkTest, EveryPublishedFamilyIsWalked) {
  std::set<std::string> types;
  test::published_choices(&types);
  types.insert("tailor_hourglass");  // the options of [architecture] are all of it
  // The reader of configs names what it knows.
  const auto refused = pretrained::parse_config(R"({"model_type": "?"})", "x");
  ASSERT_FALSE(refused.has_value());
  const std::string text = refused.error().message();
  std::istringstream known(text.substr(text.find("known: ") + 7));
  std::string type;
  while (std::getline(known >> std::ws, type, ',')) {
    EXPECT_TRUE(types.contains(type)) << type << " is published and not walked";
  }
}

// The walk sees what it is for: each combination of the table is met by some network, so a table
// without it is found out, and the finding names the operator and the types.
TEST(OpWalkTest, ATableWithoutAnyOneOfItsCombinationsIsFoundOut) {
  for (const Operator& line : kOperators) {
    for (std::size_t i = 0; i < combinations_of(line).size(); ++i) {
      std::vector<Operator> table(std::begin(kOperators), std::end(kOperators));
      const auto index = static_cast<std::size_t>(&line - kOperators);
      Operator& cut = table[index];
      const Combination gone = cut.combinations[i];
      for (std::size_t j = i; j + 1 < std::size(cut.combinations); ++j) {
        cut.combinations[j] = cut.combinations[j + 1];
      }
      cut.combinations[std::size(cut.combinations) - 1] = {};
      std::vector<std::string> found = test::missing(table, walked_published().cpu, true);
      if (!line.cpu_only) {
        for (const std::string& text : test::missing(table, walked_published().cuda, false)) {
          found.push_back(text);
        }
      }
      SCOPED_TRACE(testing::Message()
                   << line.name << " " << type_name(gone.x) << " " << type_name(gone.y));
      ASSERT_FALSE(found.empty());
      for (const std::string& text : found) {
        EXPECT_NE(text.find(std::string("tailor::") + line.name), std::string::npos) << text;
        EXPECT_NE(text.find(type_name(gone.x)), std::string::npos) << text;
        EXPECT_NE(text.find(type_name(gone.y)), std::string::npos) << text;
      }
    }
  }
}

TEST(OpWalkTest, ATableWithoutTheNormFromBf16ToFp32IsFoundOutOnBothDevices) {
  std::vector<Operator> table(std::begin(kOperators), std::end(kOperators));
  int taken_out = 0;
  for (Operator& line : table) {
    if (!std::string_view(line.name).starts_with("rms_norm")) continue;
    for (Combination& combination : line.combinations) {
      if (combination.x != Type::bf16 || combination.y != Type::f32) continue;
      // The order does not matter: another one twice.
      combination = line.combinations[0];
      ++taken_out;
    }
  }
  ASSERT_EQ(taken_out, 2);  // forward and backward
  for (const bool cpu : {true, false}) {
    const std::vector<std::string> found =
        test::missing(table, cpu ? walked_published().cpu : walked_published().cuda, cpu);
    bool forward = false;
    bool backward = false;
    for (const std::string& text : found) {
      forward =
          forward || text.starts_with("tailor::rms_norm x bf16, weight f32 -> y f32, rstd f32");
      backward =
          backward || text.starts_with("tailor::rms_norm_backward grad f32, x bf16, weight f32");
      // It says whose network needs it.
      EXPECT_NE(text.find("first met in: olmo2 in bf16"), std::string::npos) << text;
    }
    EXPECT_TRUE(forward && backward) << lines(found);
  }
}

#ifdef TAILOR_TORCH_LIB
// LibTorch's own operators: each that the meta level was given has a kernel for GPUs in
// libtorch_cuda.so, unless it is made of others. Its types are LibTorch's matter.
TEST(OpWalkTest, LibTorchsOperatorsOfAWalkHaveKernelsForGpus) {
  std::set<std::string> offered;
  const std::string command =
      "nm -D --defined-only " + std::string(TAILOR_TORCH_LIB) + "/libtorch_cuda.so";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    // "... T _ZN2at4cuda3addERK...": functions of at::cuda, one for each operator with a kernel.
    const std::string line(buffer);
    const std::size_t at = line.find("_ZN2at4cuda");
    if (at == std::string::npos) continue;
    std::size_t digits = at + 11;
    std::size_t length = 0;
    while (digits < line.size() && std::isdigit(static_cast<unsigned char>(line[digits])) != 0) {
      length = length * 10 + static_cast<std::size_t>(line[digits++] - '0');
    }
    offered.insert(line.substr(digits, length));
  }
  ::pclose(pipe);
  ASSERT_GT(offered.size(), 100u) << "nm read nothing from libtorch_cuda.so";
  std::string without;
  for (const auto& [name, place] : walked().cuda.libtorch) {
    const std::size_t dot = name.find('.');
    const std::string base = name.substr(0, dot);
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        base.c_str(), dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
    using Key = c10::DispatchKey;
    if (handle.hasKernelForDispatchKey(Key::CompositeImplicitAutograd) ||
        handle.hasKernelForDispatchKey(Key::CompositeExplicitAutograd) ||
        handle.hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional)) {
      continue;
    }
    std::string short_name = base.substr(base.find("::") + 2);
    if (name.ends_with("out")) short_name += "_out";
    if (!offered.contains(short_name)) without += "\n  " + name + " (" + place + ")";
  }
  EXPECT_EQ(without, "");
}
#endif

TEST(PairwiseTest, AnyTwoLevelsOfAnyTwoFactorsMeet) {
  const std::vector<std::size_t> levels = {2, 3, 5, 2, 1, 4, 2, 2};
  const auto rows = test::pairwise(levels);
  EXPECT_LT(rows.size(), 40u);  // of 960
  for (std::size_t a = 0; a < levels.size(); ++a) {
    for (std::size_t b = a + 1; b < levels.size(); ++b) {
      std::set<std::pair<std::size_t, std::size_t>> met;
      for (const auto& row : rows) met.insert({row[a], row[b]});
      EXPECT_EQ(met.size(), levels[a] * levels[b]) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace tailor::kernels
