// Gradients summed over ranks: those of the whole batch, the same bits on every rank, while the
// backward pass runs.
#include "model/train/ranks/reducer.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/net/decoder.h"
#include "tests/model/support.h"
#include "tests/model/train/ranks/support.h"

namespace tailor::train::ranks {
namespace {

constexpr std::int64_t kRows = 7;  // not the same on both ranks
constexpr std::int64_t kTime = 12;
constexpr std::int64_t kSmallBucket = 4096;  // several buckets in a small network

at::Tensor tokens(std::uint64_t seed) {
  Rng rng(seed);
  at::Tensor x = at::empty({kRows, kTime}, at::kLong);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(rng.below(64));
  }
  return x;
}

struct Case {
  const char* name;
  bool bf16;
  bool tied;
  double tolerance;
};

// Gradients of three steps with the weights as they are:
// rows `share` of the batch, in `micro` rows.
std::vector<at::Tensor> gradients(const Case& how, Group& group, std::int64_t micro,
                                  bool& overlaps) {
  shape::Architecture architecture = test::small_architecture();
  architecture.tie_embeddings = how.tied;
  net::Decoder decoder(architecture, at::kCPU, how.bf16);
  decoder.initialise(5, 0.2);
  net::ParameterSet& parameters = decoder.parameters();
  GradientReducer reducer(parameters, group, kSmallBucket);
  const Share share = group.share(kRows);
  std::vector<at::Tensor> all;
  for (std::uint64_t step = 0; step < 4; ++step) {
    parameters.zero_gradient();
    const at::Tensor x = tokens(2 * step).narrow(0, share.begin, share.count);
    const at::Tensor y = tokens(2 * step + 1).narrow(0, share.begin, share.count);
    for (std::int64_t begin = 0; begin < share.count; begin += micro) {
      const std::int64_t count = std::min(micro, share.count - begin);
      const bool last = begin + count == share.count;
      if (last) reducer.prepare();
      decoder.loss(x.narrow(0, begin, count), y.narrow(0, begin, count), 1.0 / (kRows * kTime))
          .backward();
      if (last) reducer.finish();
    }
    all.push_back(parameters.gradient().clone());
  }
  overlaps = reducer.overlaps();
  return all;
}

class ReducerTest : public testing::TestWithParam<Case> {};

TEST_P(ReducerTest, SumsAreTheGradientsOfTheWholeBatchWithTheSameBitsOnEveryRank) {
  const Case how = GetParam();
  for (const std::int64_t micro : {kRows, std::int64_t{2}}) {
    bool overlaps = false;
    Group alone;
    const std::vector<at::Tensor> wanted = gradients(how, alone, kRows, overlaps);
    EXPECT_FALSE(overlaps);
    for (const int size : {2, 3}) {
      std::vector<std::vector<at::Tensor>> got(static_cast<std::size_t>(size));
      const SystemClock clock;
      test::MemoryRendezvous rendezvous;
      std::vector<std::thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          auto mesh = Mesh::join(test::mesh_options(rank, size), rendezvous, clock);
          ASSERT_TRUE(mesh.has_value()) << mesh.error().message();
          Group group(std::move(*mesh));
          bool overlapped = false;
          got[static_cast<std::size_t>(rank)] = gradients(how, group, micro, overlapped);
          EXPECT_TRUE(overlapped);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (std::size_t step = 0; step < wanted.size(); ++step) {
        EXPECT_LT(test::relative_difference(got[0].at(step), wanted[step]), how.tolerance)
            << "step " << step << " with " << size << " ranks";
        for (const auto& other : got) {
          EXPECT_TRUE(test::same_bits(other.at(step), got[0].at(step)));
        }
      }
    }
  }
}

// bf16 gradients of parts of a batch are rounded on their own: 2^-9 of each.
INSTANTIATE_TEST_SUITE_P(Networks, ReducerTest,
                         testing::Values(Case{"fp32", false, false, 1e-6},
                                         Case{"fp32_tied", false, true, 1e-6},
                                         Case{"bf16", true, false, 1e-2},
                                         Case{"bf16_tied", true, true, 1e-2}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tailor::train::ranks
