#include "model/tokenizers/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "model/tokenizers/protobuf_message.h"

namespace tailor::tokenizers {
namespace {

// SentencePiece writes a space as U+2581.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr std::size_t kCachedWordBytesMax = 64;
constexpr std::size_t kCachedWordsMax = 1 << 18;
constexpr std::size_t kWordBytesMax = 64 << 10;  // longer ones are cut, where that changes nothing

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
  // For the parts of a text but the first: nothing is put in front of them that the whole lacks.
  sentencepiece::SentencePieceProcessor continuing;
  bool cuts = false;            // texts may be cut; else only the whole can be encoded
  bool has_all_bytes = false;   // nothing is unknown
  bool only_at_spaces = false;  // what is put in front of a part stands for the space there
  bool normalizes = false;      // by rules, of which only letters before spaces are known
  // Neighbours within some piece; what is not in here is never joined. Spaces as spaces.
  std::set<std::pair<char32_t, char32_t>> joins;

  static std::vector<std::uint32_t> encode_by(const sentencepiece::SentencePieceProcessor& by,
                                              std::string_view text) {
    std::vector<int> ids;
    // Encoding fails only for a model that is not loaded.
    if (!by.Encode(text, &ids).ok()) return {};
    return {ids.begin(), ids.end()};
  }
  std::vector<std::uint32_t> encode(std::string_view text) const {
    return encode_by(processor, text);
  }
  /// Whether, and how, texts may be cut. Errors: kDataLoss.
  Status find_cuts(std::string serialized);
  /// A text that holds `a` and behind it `b` may be cut between them.
  bool may_cut(char32_t a, char32_t b) const;

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

// The character that ends at, or begins at, a place in valid UTF-8.
char32_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) -> char32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  if (byte(0) < 0x80) return byte(0);
  if (byte(0) < 0xe0) return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
  if (byte(0) < 0xf0) return (byte(0) & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  return (byte(0) & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}
std::size_t begin_of_last(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0 && (static_cast<unsigned char>(text[--at]) & 0xC0) == 0x80) {
  }
  return at;
}

Status Model::find_cuts(std::string serialized) {
  std::uint64_t type = 1;  // unigram
  bool removes_spaces = true, escapes_spaces = true, is_suffix = false;
  std::string_view rules_name;
  ProtobufMessage in(serialized);
  while (in.next()) {
    ProtobufMessage part(in.bytes);
    if (in.field != 2 && in.field != 3) continue;
    while (part.next()) {
      if (in.field == 2 && part.field == 3) type = part.number;
      if (in.field == 2 && part.field == 24) is_suffix = part.number != 0;
      if (in.field == 3 && part.field == 1) rules_name = part.bytes;
      if (in.field == 3 && part.field == 2) normalizes = !part.bytes.empty();
      if (in.field == 3 && part.field == 4) removes_spaces = part.number != 0;
      if (in.field == 3 && part.field == 5) escapes_spaces = part.number != 0;
    }
  }
  constexpr std::uint64_t kBpe = 2;
  constexpr std::string_view kKnownRules[] = {"identity", "nfkc", "nmt_nfkc", "nfkc_cf",
                                              "nmt_nfkc_cf"};
  // The best way through a whole text, as unigram models seek it, depends on sums over all of it.
  cuts = type == kBpe && escapes_spaces && !is_suffix &&
         (!normalizes || std::find(std::begin(kKnownRules), std::end(kKnownRules), rules_name) !=
                             std::end(kKnownRules));
  if (!cuts) return Status::ok();
  has_all_bytes = true;
  for (const std::uint32_t id : byte_ids) {
    if (!processor.IsByte(static_cast<int>(id))) has_all_bytes = false;
  }
  for (std::uint32_t id = 0; id < vocab_size; ++id) {
    const int piece = static_cast<int>(id);
    if (processor.IsByte(piece) || processor.IsControl(piece) || processor.IsUnknown(piece)) {
      continue;
    }
    std::string_view rest = texts[id];
    char32_t before = 0;
    for (bool is_first = true; !rest.empty(); is_first = false) {
      const char32_t c = character(rest);
      if (!is_first) joins.emplace(before, c);
      before = c;
      const std::size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
      rest.remove_prefix(std::min(size, rest.size()));
    }
  }
  // Fields of a message that come again are merged, so the last word of the model is ours. Where
  // spaces at the begin of a text go, the one that the cut was made at must be put back.
  const char prefix = removes_spaces ? '\1' : '\0';
  serialized += std::string{'\x1a', 2, '\x18', prefix};
  if (!continuing.LoadFromSerializedProto(serialized).ok()) {
    return Status(Code::kDataLoss, "a SentencePiece model cannot be loaded twice");
  }
  if (removes_spaces) only_at_spaces = true;
  return Status::ok();
}

bool Model::may_cut(char32_t a, char32_t b) const {
  constexpr char32_t kMark = 0x2581;  // would be taken for a space
  if (lossless && (a == '\n' || b == '\n' || (b == ' ' && a != ' '))) return true;
  if (!cuts || a == kMark || b == kMark || a == ' ' || joins.contains({a, b})) return false;
  if (normalizes || only_at_spaces) {
    if (b != ' ' || a <= ' ' || a >= 0x7f) return false;
    const char32_t small = a >= U'A' && a <= U'Z' ? a - U'A' + U'a' : a;
    if (joins.contains({small, b})) return false;
  }
  if (has_all_bytes) return true;
  // What is unknown fuses with what is unknown beside it.
  const auto is_known = [&](char32_t c) {
    const std::string_view piece = c == ' ' ? kSpaceMark : std::string_view();
    const char ascii = static_cast<char>(c);
    if (c >= 0x80) return false;
    const int id = processor.PieceToId(piece.empty() ? std::string_view(&ascii, 1) : piece);
    return !processor.IsUnknown(id) && !processor.IsUnused(id);
  };
  return is_known(a) && is_known(b);
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

  std::size_t last_cut(std::string_view text) override {
    if (!model_->lossless && !model_->cuts) return 0;
    std::size_t at = begin_of_last(text);
    if (at == 0) return 0;
    char32_t b = character(text.substr(at));
    while (at > 0) {
      const std::size_t before = begin_of_last(text.substr(0, at));
      const char32_t a = character(text.substr(before));
      if (model_->may_cut(a, b)) return at;
      at = before;
      b = a;
    }
    return 0;
  }

  void encode(std::string_view text, std::vector<std::uint32_t>* ids) override {
    encode_part(text, {}, ids);
  }

  void encode_part(std::string_view text, Part part, std::vector<std::uint32_t>* ids) override {
    if (!model_->lossless) {
      const std::vector<std::uint32_t> whole =
          part.begins ? model_->encode(text) : Model::encode_by(model_->continuing, text);
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
      for (std::size_t size = kWordBytesMax; end - at > size; size += kWordBytesMax) {
        std::size_t whole = size;
        while ((static_cast<unsigned char>(text[at + whole]) & 0xC0) == 0x80) --whole;
        if (const std::size_t cut = last_cut(text.substr(at, whole)); cut > 0) end = at + cut;
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
  TAILOR_RETURN_IF_ERROR(model->find_cuts(serialized));
  return std::make_unique<Implementation>(std::move(model));
}

}  // namespace tailor::tokenizers
