#include "model/eval/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"

namespace tailor::eval {

double bootstrap_standard_error(std::span<const BlockLoss> blocks, std::uint64_t seed,
                                int replicates) {
  TAILOR_CHECK(replicates >= 2, "replicates={}", replicates);
  const auto filled = std::count_if(blocks.begin(), blocks.end(),
                                    [](const BlockLoss& block) { return block.tokens > 0; });
  if (filled < 2) return std::numeric_limits<double>::quiet_NaN();
  Rng rng = Rng::split(seed, "bootstrap");
  double mean = 0;
  double squares = 0;  // of deviations from the mean so far (Welford)
  for (int replicate = 1; replicate <= replicates;) {
    double nats = 0;
    std::uint64_t tokens = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const BlockLoss& block = blocks[rng.below(blocks.size())];
      nats += block.nats;
      tokens += block.tokens;
    }
    if (tokens == 0) continue;  // only blocks without tokens: no loss, so no replicate
    const double loss = nats / static_cast<double>(tokens);
    const double step = loss - mean;
    mean += step / replicate;
    squares += step * (loss - mean);
    ++replicate;
  }
  return std::sqrt(squares / (replicates - 1));
}

}  // namespace tailor::eval
