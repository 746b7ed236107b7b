#include "model/eval/perplexity.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/hash.h"
#include "model/data/loader.h"
#include "model/eval/bootstrap.h"
#include "model/eval/windows.h"

namespace tailor::eval {

Result<Perplexity> evaluate_perplexity(net::Decoder& decoder, const TokenStream& stream,
                                       const PerplexityOptions& options, const Progress& progress) {
  static_assert(std::endian::native == std::endian::little, "ids are hashed as they lie in memory");
  const std::int64_t time = options.length;
  const std::int64_t stride = options.stride == 0 ? time : options.stride;
  if (stream.count < 2 || time < 1 || stride < 1 || stride > time) {
    return error(Code::kInvalidArgument,
                 stream.count < 2
                     ? fmt::format("{} tokens: at least two are needed", stream.count)
                     : fmt::format("window {} and stride {}: the window must be at least 1 and the "
                                   "stride from 1 to the window",
                                   time, stride));
  }
  const c10::NoGradGuard no_grad;
  const auto vocab_size = static_cast<std::uint64_t>(decoder.form().vocab_size);
  const Windows windows(stream.count, time, stride);
  const std::int64_t longest = windows[0].length;
  std::int64_t fit = std::max<std::int64_t>(1, options.batch.tokens / longest);
  if (options.batch.rows > 0) fit = std::min(fit, options.batch.rows);
  std::vector<BlockLoss> losses;
  std::vector<std::uint32_t> ids;
  Sha256 hash;
  for (std::uint64_t k = 0; k < windows.count();) {
    const auto rows =
        static_cast<std::int64_t>(std::min(static_cast<std::uint64_t>(fit), windows.count() - k));
    at::Tensor tokens = at::zeros({rows, longest}, at::kLong);
    at::Tensor targets = at::full({rows, longest}, data::kIgnoredTarget, at::kLong);
    for (std::int64_t row = 0; row < rows; ++row, ++k) {
      const Window window = windows[k];
      const auto length = static_cast<std::size_t>(window.length);
      const auto skipped = static_cast<std::size_t>(window.skipped);
      ids.resize(length + 1);
      TAILOR_RETURN_IF_ERROR(stream.read(window.begin, ids));
      // Ids that no earlier window has shown: those that are scored, and the very first.
      const std::size_t fresh = k == 0 ? 0 : skipped + 1;
      for (std::size_t i = fresh; i < ids.size(); ++i) {
        if (ids[i] < vocab_size) continue;
        return error(Code::kInvalidArgument,
                     fmt::format("token id {} at position {} is outside the model's vocabulary of "
                                 "{}: the text was encoded for another model",
                                 ids[i], window.begin + i, vocab_size));
      }
      hash.update(ids.data() + fresh, (ids.size() - fresh) * sizeof(std::uint32_t));
      std::copy_n(ids.begin(), length, tokens.mutable_data_ptr<std::int64_t>() + row * longest);
      std::copy(ids.begin() + static_cast<std::ptrdiff_t>(skipped) + 1, ids.end(),
                targets.mutable_data_ptr<std::int64_t>() + row * longest + window.skipped);
      losses.push_back({0, static_cast<std::uint64_t>(window.scored())});
    }
    const at::Device device = decoder.device();
    const at::Tensor nats = decoder.sequence_losses(tokens.to(device), targets.to(device)).cpu();
    for (std::int64_t row = 0; row < rows; ++row) {
      losses[losses.size() - static_cast<std::size_t>(rows - row)].nats =
          nats.const_data_ptr<double>()[row];
    }
    if (progress && !progress(k, windows.count())) {
      return error(Code::kCancelled, "stopped while evaluating");
    }
  }
  Perplexity result;
  double nats = 0;
  for (const BlockLoss& window : losses) {
    nats += window.nats;
    result.scored += window.tokens;
  }
  result.windows = windows.count();
  result.loss = nats / static_cast<double>(result.scored);
  if (!std::isfinite(result.loss)) {
    return error(Code::kOutOfRange,
                 "the loss is not finite: the model's weights are broken, or its numbers too large "
                 "for this precision (try --dtype f32)");
  }
  result.perplexity = std::exp(result.loss);
  result.standard_error = bootstrap_standard_error(
      joined_blocks(losses, static_cast<std::uint64_t>(time)), options.seed);
  result.bits_per_byte = stream.text_bytes == 0
                             ? std::numeric_limits<double>::quiet_NaN()
                             : nats / (std::numbers::ln2 * static_cast<double>(stream.text_bytes));
  result.tokens_sha256 = hash.hex();
  return result;
}

}  // namespace tailor::eval
