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
  ranks::Group alone;
  return evaluate(decoder, loader, rows, should_stop, alone);
}

Result<Evaluation> evaluate(net::Decoder& decoder, const data::EvaluationLoader& loader,
                            std::int64_t rows, const ShouldStop& should_stop, ranks::Group& group) {
  const c10::NoGradGuard no_grad;
  const std::int64_t time = loader.sequence_length();
  const auto blocks = static_cast<std::int64_t>(loader.block_count());
  const ranks::Share share = group.share(blocks);
  // Of every block the nats, 0 on ranks that do not score it, so that sums are exact; behind them
  // the ranks that were told to stop.
  std::vector<double> nats(static_cast<std::size_t>(blocks) + 1);
  for (std::int64_t block = share.begin; block < share.begin + share.count;) {
    if (should_stop && should_stop()) {
      nats.back() = 1;
      break;
    }
    const std::int64_t count = std::min(rows, share.begin + share.count - block);
    at::Tensor tokens = at::empty({count, time}, at::kLong);
    at::Tensor targets = at::empty({count, time}, at::kLong);
    const auto span_of = [&](at::Tensor& x) {
      return std::span<std::int64_t>(x.mutable_data_ptr<std::int64_t>(),
                                     static_cast<std::size_t>(x.numel()));
    };
    TAILOR_RETURN_IF_ERROR(status_of(loader.fill<std::int64_t>(static_cast<std::uint64_t>(block),
                                                               span_of(tokens), span_of(targets))));
    const at::Tensor losses =
        decoder.sequence_losses(tokens.to(decoder.device()), targets.to(decoder.device()))
            .to(at::kCPU)
            .contiguous();
    std::copy_n(losses.const_data_ptr<double>(), count, nats.begin() + block);
    block += count;
  }
  group.sum(nats);
  if (nats.back() != 0) return error(Code::kCancelled, "stopped while evaluating");
  nats.pop_back();
  Evaluation result;
  result.tokens = loader.scored_tokens();
  std::uint64_t left = result.tokens;
  double total = 0;
  for (const double of_block : nats) {
    // All sequences are full but the last of the pass.
    const std::uint64_t scored = std::min<std::uint64_t>(static_cast<std::uint64_t>(time), left);
    left -= scored;
    result.blocks.push_back({of_block, scored});
    total += of_block;
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
