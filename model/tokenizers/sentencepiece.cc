// SentencePiece's own model files, read without its library.
//
// The file is a protobuf message. Fields that matter: 1 pieces (1 text, 2 score as float, 3 type),
// 2 trainer (3 model type: 2 is BPE; 24 spaces marked behind words; 35 byte fallback; 40 to 43 ids
// of unknown, begin, end and padding), 3 normaliser (2 its compiled rules, 3 a space before the
// text, 4 removal of extra spaces, 5 spaces marked).
#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "base/text.h"
#include "model/tokenizers/protobuf_message.h"
#include "model/tokenizers/tokenizer_files.h"

namespace tailor::tokenizers {
namespace {

// Types of pieces, with the numbers of the format.
enum PieceType {
  kNormalPiece = 1,
  kUnknownPiece,
  kControlPiece,
  kUserPiece,
  kUnusedPiece,
  kBytePiece
};

struct Model {
  TokenizerSpec spec;
  std::vector<float> scores;
  std::uint64_t type = 1;  // unigram
  std::int64_t begin = 1, end = 2;
  bool marks_after = false;  // spaces are marked behind words
  bool has_rules = false, adds_prefix = true, removes_spaces = true, escapes_spaces = true;
};

bool read_piece(std::string_view bytes, Model* model) {
  ProtobufMessage in(bytes);
  std::string text;
  float score = 0;
  std::uint64_t type = kNormalPiece;
  while (in.next()) {
    if (in.field == 1) text = in.bytes;
    if (in.field == 2) score = in.real;
    if (in.field == 3) type = in.number;
  }
  const auto id = static_cast<std::uint32_t>(model->spec.pieces.size());
  PieceKind kind = PieceKind::kNormal;
  if (type == kUnknownPiece || type == kControlPiece) kind = PieceKind::kSpecial;
  if (type == kUnknownPiece) model->spec.unknown_id = id;
  if (type == kControlPiece && !text.empty()) model->spec.added.push_back({text, id, true});
  if (type == kUserPiece) {
    kind = PieceKind::kUser;
    if (!text.empty()) model->spec.added.push_back({text, id, false, true});
  }
  if (type == kUnusedPiece) kind = PieceKind::kUnused;
  if (type == kBytePiece) {
    const std::optional<std::uint8_t> byte = byte_of_piece(text);
    if (!byte) return false;
    kind = PieceKind::kByte;
    text = std::string(1, static_cast<char>(*byte));
    model->spec.has_byte_fallback = true;
  }
  model->spec.pieces.push_back(std::move(text));
  model->spec.kinds.push_back(kind);
  model->scores.push_back(score);
  return in.ok() && type >= kNormalPiece && type <= kBytePiece;
}

bool read_model(std::string_view bytes, Model* model) {
  ProtobufMessage in(bytes);
  bool fine = true;
  while (fine && in.next()) {
    if (in.field == 1) fine = read_piece(in.bytes, model);
    if (in.field == 2) {
      ProtobufMessage trainer(in.bytes);
      while (trainer.next()) {
        if (trainer.field == 3) model->type = trainer.number;
        if (trainer.field == 24) model->marks_after = trainer.number != 0;
        if (trainer.field == 41) model->begin = static_cast<std::int64_t>(trainer.number);
        if (trainer.field == 42) model->end = static_cast<std::int64_t>(trainer.number);
      }
      fine = trainer.ok();
    }
    if (in.field == 3) {
      ProtobufMessage normalizer(in.bytes);
      while (normalizer.next()) {
        if (normalizer.field == 2) model->has_rules = !normalizer.bytes.empty();
        if (normalizer.field == 3) model->adds_prefix = normalizer.number != 0;
        if (normalizer.field == 4) model->removes_spaces = normalizer.number != 0;
        if (normalizer.field == 5) model->escapes_spaces = normalizer.number != 0;
      }
      fine = normalizer.ok();
    }
  }
  return fine && in.ok() && !model->spec.pieces.empty();
}

}  // namespace

Result<TokenizerSpec> read_sentencepiece_model(std::string_view bytes, const std::string& path) {
  Model model;
  if (!read_model(bytes, &model)) {
    return error(
        Code::kDataLoss,
        fmt::format("{}: no SentencePiece model: cut, altered or another kind of file", path));
  }
  const auto refuse = [&](std::string_view what) {
    return error(
        Code::kUnimplemented,
        fmt::format("{}: {}; use the model's tokenizer.json or GGUF file instead", path, what));
  };
  constexpr std::uint64_t kBpe = 2;
  if (model.type != kBpe)
    return refuse("a SentencePiece model that is not of type BPE is not read");
  if (model.has_rules) return refuse("a SentencePiece model that normalises its text is not read");
  if (model.removes_spaces || !model.escapes_spaces) {
    return refuse(
        "a SentencePiece model that removes spaces, or leaves them unmarked, is not read");
  }
  if (model.marks_after) {
    return refuse("a SentencePiece model that treats white space as a suffix is not read");
  }
  TokenizerSpec& spec = model.spec;
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    if (spec.kinds[id] == PieceKind::kByte || seen.insert(spec.pieces[id]).second) continue;
    return refuse(fmt::format("two pieces are {}, which Google's library does not take",
                              escape_controls(spec.pieces[id])));
  }
  const auto inside = [&](std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(spec.pieces.size());
  };
  if (!inside(model.end)) {
    return error(Code::kInvalidArgument, fmt::format("{}: has no piece that ends a text", path));
  }
  spec.eos_id = static_cast<std::uint32_t>(model.end);
  if (inside(model.begin)) spec.bos_id = static_cast<std::uint32_t>(model.begin);
  mark_spaces(model.adds_prefix, &spec);
  add_merges_by_score(model.scores, &spec);
  return std::move(spec);
}

}  // namespace tailor::tokenizers
