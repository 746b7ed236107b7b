// Validation loss and perplexity (science.md 7.1): every token but the first is scored once, the
// sum is kept in double and divided by the number of scored tokens; perplexity = exp(loss).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "model/data/loader.h"
#include "model/net/decoder.h"

namespace tailor::train {

struct Evaluation {
  double loss = 0;  ///< nats a token
  double perplexity = 0;
  std::uint64_t tokens = 0;
};

/// Asked between batches; true ends the pass with kCancelled.
using ShouldStop = std::function<bool()>;

/// `rows`: sequences of one forward pass. Errors: those of the loader (kDataLoss), kCancelled.
Result<Evaluation> evaluate(net::Decoder& decoder, const data::EvaluationLoader& loader,
                            std::int64_t rows, const ShouldStop& should_stop);

}  // namespace tailor::train
