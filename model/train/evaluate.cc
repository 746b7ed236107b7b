#include "model/train/evaluate.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

namespace tailor::train {

Result<Evaluation> evaluate(net::Decoder& decoder, const data::EvaluationLoader& loader,
                            std::int64_t rows, const ShouldStop& should_stop) {
  const c10::NoGradGuard no_grad;
  const std::int64_t time = loader.sequence_length();
  Evaluation result;
  double total = 0;
  for (std::uint64_t block = 0; block < loader.block_count();) {
    if (should_stop && should_stop()) return error(Code::kCancelled, "stopped while evaluating");
    const auto count = static_cast<std::int64_t>(
        std::min<std::uint64_t>(static_cast<std::uint64_t>(rows), loader.block_count() - block));
    at::Tensor tokens = at::empty({count, time}, at::kLong);
    at::Tensor targets = at::empty({count, time}, at::kLong);
    const auto span_of = [&](at::Tensor& x) {
      return std::span<std::int64_t>(x.mutable_data_ptr<std::int64_t>(),
                                     static_cast<std::size_t>(x.numel()));
    };
    TAILOR_ASSIGN_OR_RETURN(std::uint64_t scored,
                            loader.fill<std::int64_t>(block, span_of(tokens), span_of(targets)));
    result.tokens += scored;
    const at::Tensor losses =
        decoder.sequence_losses(tokens.to(decoder.device()), targets.to(decoder.device()))
            .to(at::kCPU)
            .contiguous();
    for (std::int64_t row = 0; row < count; ++row) {
      // All sequences are full but the last of the pass.
      const std::uint64_t of_row =
          std::min<std::uint64_t>(static_cast<std::uint64_t>(time), scored);
      scored -= of_row;
      const double nats = losses.const_data_ptr<double>()[row];
      result.blocks.push_back({nats, of_row});
      total += nats;
    }
    block += static_cast<std::uint64_t>(count);
  }
  result.loss = total / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

double bits_per_byte(const Evaluation& evaluation, const data::Dataset& validation) {
  if (validation.text_bytes() == 0 || validation.token_count() < 2) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto tokens = static_cast<double>(evaluation.tokens);
  const double bytes = static_cast<double>(validation.text_bytes()) * tokens /
                       static_cast<double>(validation.token_count() - 1);
  return evaluation.loss * tokens / (std::numbers::ln2 * bytes);
}

std::map<std::string, double> evaluation_values(const Evaluation& evaluation,
                                                const data::Dataset& validation,
                                                std::uint64_t seed) {
  std::map<std::string, double> values = {{"validation_loss", evaluation.loss},
                                          {"perplexity", evaluation.perplexity}};
  const auto add = [&](const char* name, double value) {
    if (std::isfinite(value)) values[name] = value;
  };
  add("bits_per_byte", bits_per_byte(evaluation, validation));
  add("validation_loss_se", eval::bootstrap_standard_error(evaluation.blocks, seed));
  return values;
}

}  // namespace tailor::train
