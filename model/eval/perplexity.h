// Perplexity of a token stream (science.md 7.1), side by side or strided (windows.h).
//
//   loss = (sum of -log p over scored tokens) / (scored tokens)       nats a token, sums in double
//   perplexity = exp(loss),  bits per byte = sum / (ln 2 * bytes of text)
//
// Every token but the first is scored once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "model/eval/scorer.h"
#include "model/net/decoder.h"

namespace tailor::eval {

/// Ids to be scored, from a file or from memory.
struct TokenStream {
  std::uint64_t count = 0;
  std::uint64_t text_bytes = 0;  ///< text that they stand for; 0 = not known
  /// Fills `out` with the ids from `position` on; never asked for more than there is.
  std::function<Status(std::uint64_t position, std::span<std::uint32_t> out)> read;
};

struct PerplexityOptions {
  std::int64_t length = 1024;  ///< T
  std::int64_t stride = 0;     ///< 0 = T
  std::uint64_t seed = 0;      ///< of the bootstrap
  BatchOptions batch;
};

struct Perplexity {
  double loss = 0;
  double standard_error = 0;  ///< of the loss, by the bootstrap over blocks of T; NaN for one block
  double perplexity = 0;
  double bits_per_byte = 0;  ///< NaN when the bytes are not known
  std::uint64_t scored = 0;  ///< tokens
  std::uint64_t windows = 0;
  std::string
      tokens_sha256;  ///< of all ids as 32-bit little-endian numbers, however they are stored
};

/// Errors: kInvalidArgument (fewer than two ids, T < 1, stride outside [1, T], an id outside the
/// network's vocabulary); kOutOfRange when the loss is not finite; kCancelled; those of `read`.
Result<Perplexity> evaluate_perplexity(net::Decoder& decoder, const TokenStream& stream,
                                       const PerplexityOptions& options,
                                       const Progress& progress = {});

}  // namespace tailor::eval
