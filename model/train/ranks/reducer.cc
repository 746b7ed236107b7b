#include "model/train/ranks/reducer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "base/check.h"

namespace tailor::train::ranks {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Calls a function after a leaf's gradient has been accumulated.
class AfterGradient final : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterGradient(std::function<void()> body) : body_(std::move(body)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    body_();
    return outputs;
  }

 private:
  std::function<void()> body_;
};

// Sums a bucket. No mean: the loss is scaled by the tokens of the whole step already.
class SumOfRanks final : public c10d::CommHookInterface {
 public:
  explicit SumOfRanks(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> tensors{bucket.getBufferRef()};
    return group_->allreduce(tensors)->getFuture();
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return result.toTensorVector()[0];
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

struct GradientReducer::Parts {
  // A leaf whose gradient is a slice of the flat buffer.
  struct Leaf {
    at::Tensor tensor;
    std::shared_ptr<Node> node;  // accumulates its gradient
    std::uintptr_t hook = 0;
    int times = 0;  // that its gradient came in the first pass
  };

  net::ParameterSet& parameters;
  Group& group;
  const std::int64_t bucket_bytes;
  std::vector<Leaf> leaves;        // until the first pass is over
  std::vector<std::size_t> order;  // leaves as their gradients came
  bool armed = false;
  bool learned = false;
  bool rebuilt = false;
  std::unique_ptr<c10d::Reducer> reducer;

  Parts(net::ParameterSet& parameters_in, Group& group_in, std::int64_t bytes)
      : parameters(parameters_in), group(group_in), bucket_bytes(bytes) {
    if (group.size() == 1) return;
    for (const net::Parameter* parameter : parameters.parameters()) {
      const std::size_t i = leaves.size();
      Leaf& leaf = leaves.emplace_back();
      leaf.tensor = parameter->master;
      leaf.node = torch::autograd::impl::grad_accumulator(leaf.tensor);
      leaf.hook = leaf.node->add_post_hook(std::make_unique<AfterGradient>([this, i] { note(i); }));
    }
  }

  ~Parts() {
    forget_leaves();
    if (reducer) reducer->remove_autograd_hooks();
  }

  void forget_leaves() {
    for (Leaf& leaf : leaves) leaf.node->del_post_hook(leaf.hook);
    leaves.clear();
  }

  void note(std::size_t i) {
    if (!armed) return;
    if (++leaves[i].times == 1) order.push_back(i);
  }

  // After the first pass.
  void learn() {
    learned = true;
    bool once = true;
    std::vector<at::Tensor> ready;
    for (const std::size_t i : order) {
      once = once && leaves[i].times == 1;
      ready.push_back(leaves[i].tensor);
    }
    forget_leaves();
    if (!once) return;
    const auto bytes = static_cast<std::size_t>(bucket_bytes);
    const std::size_t first = std::min<std::size_t>(bytes, c10d::kDefaultFirstBucketBytes);
    const auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(ready, {first, bytes});
    reducer = std::make_unique<c10d::Reducer>(
        ready, buckets, group.process_group(), std::vector<bool>(ready.size(), false), bucket_bytes,
        /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false,
        std::unordered_map<std::size_t, std::string>(), static_cast<std::int64_t>(first),
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
        std::vector<std::int64_t>());
    reducer->register_comm_hook(std::make_unique<SumOfRanks>(group.process_group()));
  }

  void sum_all() {
    const at::Tensor& flat = parameters.gradient();
    const std::int64_t step = std::max<std::int64_t>(1, bucket_bytes / 4);
    for (std::int64_t begin = 0; begin < flat.numel(); begin += step) {
      group.sum(flat.narrow(0, begin, std::min(step, flat.numel() - begin)));
    }
  }
};

GradientReducer::GradientReducer(net::ParameterSet& parameters, Group& group,
                                 std::int64_t bucket_bytes)
    : parts_(std::make_unique<Parts>(parameters, group, bucket_bytes)) {}

GradientReducer::~GradientReducer() = default;

bool GradientReducer::overlaps() const { return parts_->reducer != nullptr; }

void GradientReducer::prepare() {
  Parts& parts = *parts_;
  if (parts.group.size() == 1) return;
  parts.armed = true;
  if (!parts.reducer) return;
  // Once, after its first step: buckets in the order of ready gradients. They have it already, but
  // the Reducer keeps notes of every step until it was asked.
  if (!parts.rebuilt && parts.reducer->rebuild_buckets()) parts.rebuilt = true;
  parts.reducer->prepare_for_backward({});
}

void GradientReducer::finish() {
  Parts& parts = *parts_;
  if (parts.group.size() == 1) return;
  parts.armed = false;
  if (parts.reducer) {
    parts.reducer->check_finalized();
    return;
  }
  if (!parts.learned) parts.learn();
  parts.sum_all();
}

}  // namespace tailor::train::ranks
