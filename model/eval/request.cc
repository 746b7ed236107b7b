#include "model/eval/request.h"

#include <fmt/format.h>

#include <string>

#include "model/eval/unicode.h"

namespace tailor::eval {

Result<Request> encode_request(tokenizers::Tokenizer& tokenizer, const Encoding& encoding,
                               std::string_view context, std::string_view continuation) {
  const std::string_view kept = strip_right(context);
  const std::string moved = std::string(context.substr(kept.size())) + std::string(continuation);
  const auto encode = [&](const std::string& text, std::vector<std::uint32_t>* ids) {
    if (encoding.bos) ids->push_back(*encoding.bos);
    tokenizer.encode(text, ids);
  };
  Request request;
  std::vector<std::uint32_t> context_ids;
  if (kept.empty()) {
    request.ids.push_back(encoding.prefix);
    tokenizer.encode(moved, &request.ids);
    request.context_ids = 1;
  } else {
    encode(std::string(kept), &context_ids);
    encode(std::string(kept) + moved, &request.ids);
    request.context_ids = context_ids.size();
  }
  for (const std::uint32_t id : request.ids) {
    if (id >= encoding.vocab_size) {
      return error(Code::kInvalidArgument,
                   fmt::format("token id {} is outside the model's vocabulary of {}: the tokenizer "
                               "is another model's",
                               id, encoding.vocab_size));
    }
  }
  if (request.ids.size() <= request.context_ids) {
    return error(Code::kInvalidArgument,
                 "the continuation adds no token to its context: there is nothing to score");
  }
  request.scored = request.ids.size() - request.context_ids;
  const auto length_max = static_cast<std::size_t>(encoding.sequence_length);
  if (request.scored > length_max) {
    return error(
        Code::kInvalidArgument,
        fmt::format("the continuation has {} tokens, but the model reads {} at once: raise "
                    "--max-length, or leave the item out",
                    request.scored, length_max));
  }
  if (request.ids.size() > length_max + 1) {
    request.cut = request.ids.size() - (length_max + 1);
    request.ids.erase(request.ids.begin(),
                      request.ids.begin() + static_cast<std::ptrdiff_t>(request.cut));
  }
  return request;
}

}  // namespace tailor::eval
