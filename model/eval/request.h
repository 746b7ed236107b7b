// Requests: a context and a continuation as token ids, cut and split by the harness's rules.
//
//   1. White space at the context's end moves to the front of the continuation.
//   2. The pair is encoded as one text, the context alone; the continuation's ids are those of the
//      pair behind the first (number of the context's ids).
//   3. BOS stands in front only where the tokenizer adds it by default; a context without ids is
//      replaced by one BOS, or EOS where there is no BOS.
//   4. All but the last id are the model's input; if they are more than T, the first ones are cut
//      off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::eval {

/// How texts become ids for one model.
struct Encoding {
  /// Put in front of every text: set only if the tokenizer does so by default.
  std::optional<std::uint32_t> bos;
  /// Stands for an empty context: BOS if the tokenizer has one, else EOS.
  std::uint32_t prefix = 0;
  std::uint32_t vocab_size = 0;      ///< of the model: every id must be below it
  std::int64_t sequence_length = 0;  ///< T >= 1
};

/// What is scored: the last `scored` ids of `ids`.
struct Request {
  std::vector<std::uint32_t> ids;  ///< context and continuation, at most T + 1
  std::size_t scored = 0;          ///< in [1, ids.size() - 1]
  std::size_t context_ids = 0;     ///< before the cut, BOS or prefix included
  std::size_t cut = 0;             ///< ids cut off at the front
};

/// Errors: kInvalidArgument when an id is outside the model's vocabulary (another model's
/// tokenizer), when the continuation has no ids, or when it has more than T (its own first ids
/// would be cut: raise T or leave the item out). REQUIRES: valid UTF-8; T >= 1.
Result<Request> encode_request(tokenizers::Tokenizer& tokenizer, const Encoding& encoding,
                               std::string_view context, std::string_view continuation);

}  // namespace tailor::eval
