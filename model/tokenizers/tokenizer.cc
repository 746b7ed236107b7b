#include "model/tokenizers/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace tailor::tokenizers {
namespace {

constexpr std::uint32_t kByteCount = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  std::uint32_t vocab_size() const override { return kByteCount + 1; }
  std::uint32_t eos_id() const override { return kByteCount; }
  std::string sha256() const override { return sha256_hex("tailor bytes 257"); }

  std::size_t last_cut(std::string_view text) override {
    std::size_t at = text.size() - std::min<std::size_t>(1, text.size());
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
  }
  void encode(std::string_view text, std::vector<std::uint32_t>* ids) override {
    ids->reserve(ids->size() + text.size());
    for (const char c : text) ids->push_back(static_cast<unsigned char>(c));
  }

  Result<std::string> decode(std::span<const std::uint32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const std::uint32_t id : ids) {
      if (id > kByteCount) {
        return error(
            Code::kInvalidArgument,
            fmt::format("token id {} is outside the byte vocabulary of {}", id, kByteCount + 1));
      }
      if (id < kByteCount) text += static_cast<char>(id);
    }
    return text;
  }

  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<ByteTokenizer>(); }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace tailor::tokenizers
