// A walk over networks that records which operators a training step and an evaluation call, and
// with which types: on the meta level (no values, the calls that a GPU would get), on the CPU, or
// on a GPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/kernels/op_check.h"
#include "model/kernels/ops.h"
#include "model/net/decoder.h"
#include "model/train/optimizer.h"
#include "model/train/step.h"

namespace tailor::kernels::test {

/// A call of one of Tailor's operators.
struct OpCall {
  std::string name;  ///< without "tailor::"
  std::vector<Type> inputs;
  std::vector<Type> outputs;
  auto operator<=>(const OpCall&) const = default;
};

/// What was called, and the place where it was first met.
struct Record {
  std::map<OpCall, std::string> own;
  std::map<std::string, std::string> libtorch;  ///< "aten::add.Tensor"
  std::map<std::string, std::string> failures;  ///< what was thrown
};

/// Records what this thread calls, and what autograd calls for it, into `record` while it lives;
/// one at a time. It stands in front of the dispatcher as LibTorch's own tests of modes do: every
/// call comes by, those that other operators make too.
class Recorder {
 public:
  Recorder(Record& record, std::string place) {
    const std::scoped_lock lock(mutex());
    record_ = &record;
    place_ = std::move(place);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  static void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) {
    const c10::FunctionSchema& schema = op.schema();
    const std::string& name = schema.name();
    OpCall call;
    if (name.starts_with("tailor::")) {
      call.name = name.substr(8);
      const auto& arguments = schema.arguments();
      const std::size_t first = stack->size() - arguments.size();
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i].type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
          call.inputs.push_back(type_in((*stack)[first + i]));
        }
      }
    }
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    const std::scoped_lock lock(mutex());
    if (call.name.empty()) {
      const std::string& overload = schema.overload_name();
      record_->libtorch.emplace(overload.empty() ? name : name + "." + overload, place_);
      return;
    }
    const std::size_t results = schema.returns().size();
    for (std::size_t i = stack->size() - results; i < stack->size(); ++i) {
      call.outputs.push_back(type_in((*stack)[i]));
    }
    record_->own.emplace(std::move(call), place_);
  }

 private:
  static constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

  static std::mutex& mutex() {
    static std::mutex one;  // guards: record_, place_ and what they point to
    return one;
  }

  static Type type_in(const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return Type::none;
    return kernels::type_of(value.toTensor().scalar_type());
  }

  static inline Record* record_ = nullptr;
  static inline std::string place_;
  c10::impl::IncludeDispatchKeyGuard in_front_{kKey};
};

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Recorder::on_call>());
}

/// One network and how it is trained.
struct Choice {
  std::string name;
  net::DecoderForm form;
  bool bf16 = false;
  bool recompute = false;
  double z_loss = 0;
  double clip = 1;
  bool own_rates = false;  ///< tensors with rates of their own (muP)
  std::int64_t micro_rows = 0;
  std::int64_t time = 12;
};

/// A training step, evaluations, and an evaluation with weights for inference alone, on `device`.
inline void take(const Choice& choice, at::Device device) {
  const at::Tensor tokens = at::zeros({2, choice.time}, at::kLong);
  const at::Tensor there = tokens.to(device);
  const auto evaluate = [&](net::Decoder& decoder) {
    const c10::NoGradGuard no_grad;
    decoder.sequence_losses(there, there);
    const net::Tap nothing = [](net::Place, std::int64_t, const at::Tensor&) {};
    const at::Tensor hidden = decoder.hidden(there, &nothing);
    decoder.scores(hidden.narrow(0, 0, 1));
    decoder.logits(there);
  };
  {
    net::Decoder decoder(choice.form, device, choice.bf16);
    decoder.set_recompute(choice.recompute);
    protocol::OptimizerSpec spec;
    spec.clip = choice.clip;
    train::AdamW::LrFactor factor;
    if (choice.own_rates) {
      factor = [](const net::Part& part) { return part.init == net::Init::kResidual ? 0.5 : 1.0; };
    }
    train::AdamW optimizer(decoder.parameters(), spec, factor);
    // Capped scores take no z-loss (net/decoder.cc).
    const double z_loss = choice.form.logit_cap > 0 ? 0 : choice.z_loss;
    train::TrainStep step(decoder, optimizer, choice.micro_rows, z_loss);
    step.run(tokens, tokens, 1e-3);
    evaluate(decoder);
  }
  net::Decoder decoder(choice.form, device, choice.bf16, net::Use::kInference);
  evaluate(decoder);
}

/// `take` with what is called recorded; what is thrown is a failure of the record.
inline void walk(const Choice& choice, at::Device device, Record& record) {
  const Recorder recorder(record, choice.name);
  try {
    take(choice, device);
  } catch (const c10::Error& failure) {
    record.failures.emplace(failure.what_without_backtrace(), choice.name);
  }
}

/// What of `record` is not in `table`, in words; empty if all is. `cpu`: operators of the CPU alone
/// count.
inline std::vector<std::string> missing(std::span<const Operator> table, const Record& record,
                                        bool cpu) {
  std::vector<std::string> found;
  for (const auto& [what, place] : record.failures) {
    found.push_back(fmt::format("{} (first met in: {})", what, place));
  }
  for (const auto& [call, place] : record.own) {
    const Operator* line = find_operator(table, call.name);
    if (line == nullptr || (line->cpu_only && !cpu)) {
      found.push_back(fmt::format(
          "tailor::{} is not in the table of this device (first met in: {})", call.name, place));
    } else if (find_combination(*line, call.inputs, call.outputs) == nullptr) {
      found.push_back(
          fmt::format("{} (first met in: {})", refusal(*line, call.inputs, call.outputs), place));
    }
  }
  return found;
}

/// Rows of choices, one level (from 0) for each factor, such that any two levels of any two factors
/// meet in some row. `levels`: how many each factor has.
inline std::vector<std::vector<std::size_t>> pairwise(const std::vector<std::size_t>& levels) {
  using Level = std::pair<std::size_t, std::size_t>;  // factor, level
  std::set<std::pair<Level, Level>> open;
  for (std::size_t a = 0; a < levels.size(); ++a) {
    for (std::size_t b = a + 1; b < levels.size(); ++b) {
      for (std::size_t i = 0; i < levels[a]; ++i) {
        for (std::size_t j = 0; j < levels[b]; ++j) open.insert({{a, i}, {b, j}});
      }
    }
  }
  const auto pair_of = [](Level x, Level y) { return x < y ? std::pair(x, y) : std::pair(y, x); };
  std::vector<std::vector<std::size_t>> rows;
  while (!open.empty()) {
    // A pair that is still open, then for each other factor the level that closes most.
    std::vector<Level> chosen = {open.begin()->first, open.begin()->second};
    for (std::size_t factor = 0; factor < levels.size(); ++factor) {
      if (factor == chosen[0].first || factor == chosen[1].first) continue;
      std::size_t best = rows.size() % levels[factor];
      std::size_t most = 0;
      for (std::size_t level = 0; level < levels[factor]; ++level) {
        std::size_t closed = 0;
        for (const Level& other : chosen) closed += open.count(pair_of({factor, level}, other));
        if (closed > most) {
          most = closed;
          best = level;
        }
      }
      chosen.push_back({factor, best});
    }
    std::vector<std::size_t>& row = rows.emplace_back(levels.size());
    for (const Level& x : chosen) {
      row[x.first] = x.second;
      for (const Level& y : chosen) open.erase(pair_of(x, y));
    }
  }
  return rows;
}

}  // namespace tailor::kernels::test
