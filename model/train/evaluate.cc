#include "model/train/evaluate.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
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
    TAILOR_ASSIGN_OR_RETURN(const std::uint64_t scored,
                            loader.fill<std::int64_t>(block, span_of(tokens), span_of(targets)));
    total +=
        decoder.loss(tokens.to(decoder.device()), targets.to(decoder.device()), 1.0).item<double>();
    result.tokens += scored;
    block += static_cast<std::uint64_t>(count);
  }
  result.loss = total / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace tailor::train
