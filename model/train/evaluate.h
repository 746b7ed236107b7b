// Validation loss and perplexity (science.md 7.1): every token but the first is scored once, the
// sum is kept in double and divided by the number of scored tokens; perplexity = exp(loss).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/data/loader.h"
#include "model/eval/bootstrap.h"
#include "model/net/decoder.h"
#include "model/train/ranks/group.h"

namespace tailor::train {

struct Evaluation {
  double loss = 0;  ///< nats a token
  double perplexity = 0;
  std::uint64_t tokens = 0;
  std::vector<eval::BlockLoss> blocks;  ///< one a sequence, in their order
};

/// Asked between batches; true ends the pass with kCancelled.
using ShouldStop = std::function<bool()>;

/// `rows`: sequences of one forward pass. Each rank of `group` scores its share of the sequences;
/// all get the whole result. Errors: those of the loader (kDataLoss), kCancelled (on every rank
/// when one is told to stop). Throws ranks::GroupLost.
Result<Evaluation> evaluate(net::Decoder& decoder, const data::EvaluationLoader& loader,
                            std::int64_t rows, const ShouldStop& should_stop, ranks::Group& group);
/// The same by one process.
Result<Evaluation> evaluate(net::Decoder& decoder, const data::EvaluationLoader& loader,
                            std::int64_t rows, const ShouldStop& should_stop);

/// nats / (ln 2 * bytes), bytes = the text behind the scored tokens: all of `validation`, or its
/// share of them when the pass was limited. NaN when the data does not say how much text it is.
double bits_per_byte(const Evaluation& evaluation, const data::Dataset& validation);

/// What an evaluation says, by metric name: validation_loss, perplexity, bits_per_byte, and
/// validation_loss_se, the block-bootstrap standard error over sequences (eval/bootstrap.h). What
/// is not known is left out.
std::map<std::string, double> evaluation_values(const Evaluation& evaluation,
                                                const data::Dataset& validation,
                                                std::uint64_t seed);

}  // namespace tailor::train
