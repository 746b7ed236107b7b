#include "model/train/step.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

namespace tailor::train {
namespace {

// While it lives and `wanted` holds, LibTorch takes kernels whose sums have one order, and throws
// where it has none.
class FixedOrder {
 public:
  explicit FixedOrder(bool wanted)
      : wanted_(wanted),
        on_(at::globalContext().deterministicAlgorithms()),
        warn_only_(at::globalContext().deterministicAlgorithmsWarnOnly()),
        fills_(at::globalContext().deterministicFillUninitializedMemory()) {
    if (!wanted_) return;
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // a pass over every tensor
  }
  ~FixedOrder() {
    if (!wanted_) return;
    at::globalContext().setDeterministicAlgorithms(on_, warn_only_);
    at::globalContext().setDeterministicFillUninitializedMemory(fills_);
  }
  FixedOrder(const FixedOrder&) = delete;
  FixedOrder& operator=(const FixedOrder&) = delete;

 private:
  bool wanted_;
  bool on_;
  bool warn_only_;
  bool fills_;
};

bool all_finite(const at::Tensor& x) { return !(x - x).ne(0).any().item<bool>(); }

}  // namespace

at::Tensor TrainStep::run(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double lr) {
  optimizer_.set_rate(lr);
  const at::Tensor numbers = work(tokens_bt.to(device()), targets_bt.to(device()));
  optimizer_.count_step();
  return numbers;
}

at::Tensor TrainStep::work(const at::Tensor& tokens_bt, const at::Tensor& targets_bt) {
  const FixedOrder order(fixed_order_ && !device().is_cpu());
  const auto over = [&](Phase phase) {
    if (watcher_) watcher_(phase);
  };
  const std::int64_t rows = tokens_bt.size(0);
  const std::int64_t micro = micro_rows_ > 0 ? std::min(micro_rows_, rows) : rows;
  const double scale = 1.0 / static_cast<double>(group_ ? step_tokens_ : tokens_bt.numel());
  net::ParameterSet& parameters = decoder_.parameters();
  parameters.zero_gradient();
  at::Tensor loss;
  for (std::int64_t begin = 0; begin < rows; begin += micro) {
    const std::int64_t count = std::min(micro, rows - begin);
    const at::Tensor part = decoder_.loss(tokens_bt.narrow(0, begin, count),
                                          targets_bt.narrow(0, begin, count), scale, z_loss_);
    over(Phase::kForward);
    const bool shared = reducer_ && begin + count == rows;
    if (shared) reducer_->prepare();
    part.backward();
    if (shared) reducer_->finish();
    over(Phase::kBackward);
    loss = loss.defined() ? loss + part.detach() : part.detach();
  }
  if (group_) group_->sum(loss);
  const at::Tensor numbers = optimizer_.update(loss);
  over(Phase::kUpdate);
  return numbers;
}

std::string find_nonfinite(net::Decoder& decoder, const at::Tensor& tokens_bt,
                           const at::Tensor& targets_bt) {
  net::ParameterSet& parameters = decoder.parameters();
  if (const auto name = parameters.first_nonfinite(parameters.flat())) return "the weight " + *name;
  std::string first;
  const net::Tap tap = [&](net::Place place, std::int64_t layer, const at::Tensor& x_nd) {
    if (!first.empty() || all_finite(x_nd)) return;
    switch (place) {
      case net::Place::kEmbedding:
        first = "the embedded tokens";
        break;
      case net::Place::kAfterAttention:
        first = fmt::format("the residual stream after attention of layer {}", layer);
        break;
      case net::Place::kMlpInput:
      case net::Place::kMlpOutput:
      case net::Place::kAfterSubMlp:
        break;  // within the FFN, whose end comes next
      case net::Place::kAfterFfn:
        first = fmt::format("the residual stream after the FFN of layer {}", layer);
        break;
      case net::Place::kFinal:
        first = "the output of the final norm";
        break;
    }
  };
  decoder.hidden(tokens_bt.to(decoder.device()), &tap);
  if (!first.empty()) return first;
  parameters.zero_gradient();
  const at::Tensor loss =
      decoder.loss(tokens_bt.to(decoder.device()), targets_bt.to(decoder.device()),
                   1.0 / static_cast<double>(tokens_bt.numel()));
  if (!all_finite(loss)) return "the scores";
  loss.backward();
  if (const auto name = parameters.first_nonfinite(parameters.gradient())) {
    return "the gradient of " + *name;
  }
  return std::string(kNothingNonfinite);
}

}  // namespace tailor::train
