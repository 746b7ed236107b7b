#include "model/tokenizers/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/hash.h"

namespace tailor::tokenizers {
namespace {

// SentencePiece writes a space as U+2581.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr std::size_t kCachedWordBytesMax = 64;
constexpr std::size_t kCachedWordsMax = 1 << 18;
constexpr std::size_t kWordBytesMax = 64 << 10;

/// A loaded model and what is known about its pieces;
/// shared by clones, constant after construction.
struct Model {
  sentencepiece::SentencePieceProcessor processor;
  std::string sha256;
  std::uint32_t vocab_size = 0;
  std::uint32_t eos_id = 0;
  std::array<std::uint32_t, 256> byte_ids{};
  std::vector<std::string>
      texts;  // of each id: spaces as spaces, bytes as bytes, control pieces empty
  bool lossless = false;

  std::vector<std::uint32_t> encode(std::string_view text) const {
    std::vector<int> ids;
    // Encoding fails only for a model that is not loaded.
    if (!processor.Encode(text, &ids).ok()) return {};
    return {ids.begin(), ids.end()};
  }

  std::string text_of(std::span<const std::uint32_t> ids) const {
    std::string text;
    for (const std::uint32_t id : ids) text += texts[id];
    return text;
  }

  /// Whether words may be encoded apart and decoding gives the text back.
  bool find_lossless() const;
};

std::string with_spaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    if (piece.starts_with(kSpaceMark)) {
      text += ' ';
      piece.remove_prefix(kSpaceMark.size());
    } else {
      text += piece.front();
      piece.remove_prefix(1);
    }
  }
  return text;
}

bool Model::find_lossless() const {
  for (std::size_t byte = 0; byte < byte_ids.size(); ++byte) {
    if (!processor.IsByte(static_cast<int>(byte_ids[byte]))) return false;
  }
  for (std::uint32_t id = 0; id < vocab_size; ++id) {
    const int piece = static_cast<int>(id);
    if (processor.IsByte(piece) || processor.IsControl(piece) || processor.IsUnknown(piece))
      continue;
    const std::string& text = texts[id];
    const std::size_t first_other = text.find_first_not_of(' ');
    if (text.find('\n') != std::string::npos) return false;
    if (first_other != std::string::npos && text.find(' ', first_other) != std::string::npos) {
      return false;
    }
  }
  // A dummy prefix, squeezed spaces, compatibility forms (ligature, circled digit,
  // wide letter, NBSP).
  for (const std::string_view text :
       {"a", " a", "  a  b ", "\xEF\xAC\x81 \xE2\x91\xA0 \xEF\xBC\xA1\xC2\xA0x"}) {
    if (text_of(encode(text)) != text) return false;
  }
  return true;
}

/// Hash and equality that look words up without copying them.
struct WordHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view word) const {
    return std::hash<std::string_view>{}(word);
  }
};

class Implementation final : public SentencePieceTokenizer {
 public:
  explicit Implementation(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  std::uint32_t vocab_size() const override { return model_->vocab_size; }
  std::uint32_t eos_id() const override { return model_->eos_id; }
  std::string sha256() const override { return model_->sha256; }
  bool is_lossless() const override { return model_->lossless; }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<Implementation>(model_);
  }
  std::vector<std::uint32_t> encode_whole(std::string_view text) const override {
    return model_->encode(text);
  }

  void encode(std::string_view text, std::vector<std::uint32_t>* ids) override {
    if (!model_->lossless) {
      const std::vector<std::uint32_t> whole = model_->encode(text);
      ids->insert(ids->end(), whole.begin(), whole.end());
      return;
    }
    std::size_t at = 0;
    while (at < text.size()) {
      if (text[at] == '\n') {
        ids->push_back(model_->byte_ids['\n']);
        ++at;
        continue;
      }
      // A word: spaces, then everything up to the next space or newline.
      std::size_t end = at;
      while (end < text.size() && text[end] == ' ') ++end;
      while (end < text.size() && text[end] != ' ' && text[end] != '\n') ++end;
      if (end - at > kWordBytesMax) {
        end = at + kWordBytesMax;
        while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
      }
      encode_word(text.substr(at, end - at), ids);
      at = end;
    }
  }

  Result<std::string> decode(std::span<const std::uint32_t> ids) const override {
    for (const std::uint32_t id : ids) {
      if (id >= model_->vocab_size) {
        return error(Code::kInvalidArgument,
                     fmt::format("token id {} is outside the model's vocabulary of {}", id,
                                 model_->vocab_size));
      }
    }
    if (model_->lossless) return model_->text_of(ids);
    std::string text;
    const auto status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) return error(Code::kInternal, status.ToString());
    return text;
  }

 private:
  void encode_word(std::string_view word, std::vector<std::uint32_t>* ids) {
    if (word.size() > kCachedWordBytesMax) {
      encode_new_word(word, ids);
      return;
    }
    auto found = cache_.find(word);
    if (found == cache_.end()) {
      if (cache_.size() >= kCachedWordsMax) cache_.clear();
      std::vector<std::uint32_t> word_ids;
      encode_new_word(word, &word_ids);
      found = cache_.emplace(word, std::move(word_ids)).first;
    }
    ids->insert(ids->end(), found->second.begin(), found->second.end());
  }

  /// U+2581 in the text would be taken for a space: it goes as its three bytes.
  void encode_new_word(std::string_view word, std::vector<std::uint32_t>* ids) const {
    for (;;) {
      const std::size_t mark = word.find(kSpaceMark);
      const std::vector<std::uint32_t> part = model_->encode(word.substr(0, mark));
      ids->insert(ids->end(), part.begin(), part.end());
      if (mark == std::string_view::npos) return;
      for (const char byte : kSpaceMark) {
        ids->push_back(model_->byte_ids[static_cast<unsigned char>(byte)]);
      }
      word.remove_prefix(mark + kSpaceMark.size());
    }
  }

  std::shared_ptr<const Model> model_;
  std::unordered_map<std::string, std::vector<std::uint32_t>, WordHash, std::equal_to<>> cache_;
};

}  // namespace

Result<std::unique_ptr<SentencePieceTokenizer>> load_sentencepiece(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::string serialized, read_file(path, 1u << 30));
  auto model = std::make_shared<Model>();
  if (serialized.empty() || !model->processor.LoadFromSerializedProto(serialized).ok()) {
    return error(
        Code::kDataLoss,
        fmt::format("{} is not a SentencePiece model, or was cut short: train it again with "
                    "tailor-tokenize train",
                    path));
  }
  if (model->processor.eos_id() < 0) {
    return error(
        Code::kInvalidArgument,
        fmt::format("the SentencePiece model {} has no EOS piece to join documents with", path));
  }
  model->sha256 = sha256_hex(serialized);
  model->vocab_size = static_cast<std::uint32_t>(model->processor.GetPieceSize());
  model->eos_id = static_cast<std::uint32_t>(model->processor.eos_id());
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    model->byte_ids[byte] =
        static_cast<std::uint32_t>(model->processor.PieceToId(fmt::format("<0x{:02X}>", byte)));
  }
  model->texts.resize(model->vocab_size);
  for (std::uint32_t id = 0; id < model->vocab_size; ++id) {
    const int piece = static_cast<int>(id);
    if (model->processor.IsControl(piece) || model->processor.IsByte(piece)) continue;
    model->texts[id] = with_spaces(model->processor.IdToPiece(piece));
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const std::uint32_t id = model->byte_ids[byte];
    if (model->processor.IsByte(static_cast<int>(id))) {
      model->texts[id] = std::string(1, static_cast<char>(byte));
    }
  }
  model->lossless = model->find_lossless();
  return std::make_unique<Implementation>(std::move(model));
}

}  // namespace tailor::tokenizers
