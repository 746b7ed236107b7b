#include "model/train/graphed_step.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "base/logging.h"

namespace tailor::train {

bool GraphedStep::fits(const at::Tensor& tokens_bt) const {
  return !tokens_.defined() || tokens_.sizes() == tokens_bt.sizes();
}

at::Tensor GraphedStep::run(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double lr) {
  if (graph_ == nullptr || !fits(tokens_bt)) return plain_.run(tokens_bt, targets_bt, lr);
  if (!tokens_.defined()) {
    const auto options = at::TensorOptions().device(plain_.device()).dtype(at::kLong);
    tokens_ = at::empty(tokens_bt.sizes(), options);
    targets_ = at::empty(tokens_bt.sizes(), options);
  }
  // The copies wait, in stream order, for the step that still reads the last batch.
  tokens_.copy_(tokens_bt, /*non_blocking=*/true);
  targets_.copy_(targets_bt, /*non_blocking=*/true);
  if (warm_up_left_ > 0) {
    --warm_up_left_;
    at::Tensor numbers;
    graph_->warm_up([&] { numbers = plain_.run(tokens_, targets_, lr); });
    return numbers;
  }
  if (!recorded_) {
    record();
    if (!recorded_) return plain_.run(tokens_, targets_, lr);
  }
  plain_.optimizer().set_rate(lr);
  graph_->replay();
  plain_.optimizer().count_step();
  return numbers_.clone();  // the next replay writes there
}

void GraphedStep::record() {
  try {
    graph_->record([&] { numbers_ = plain_.work(tokens_, targets_); });
    recorded_ = true;
  } catch (const c10::Error& failure) {
    log_warn("trainer", "steps cannot be recorded as a CUDA graph; they run one kernel at a time",
             {{"reason", failure.what_without_backtrace()}});
    numbers_ = at::Tensor();
    graph_.reset();
  }
}

}  // namespace tailor::train
