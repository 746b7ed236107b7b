// TextTokenizer: the tokenizers of published models, whatever file they come from. A TokenizerSpec
// says everything; json.cc, gguf.cc and sentencepiece.cc read one.
//
// A text goes through the steps of Hugging Face's tokenizers (or of SentencePiece, which are
// fewer): repair of broken UTF-8; tokens that are matched in the text as it is; normalisation;
// tokens that are matched in the normalised text; cutting into words;
// byte-pair merging of each word.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/tokenizers/normalizer.h"
#include "model/tokenizers/tokenizer.h"
#include "model/tokenizers/unicode_text.h"

namespace tailor::tokenizers {

/// A token that is found in the text before any merging.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool is_special = false;     ///< only found by encode_with_specials; decodes to nothing
  bool is_normalized = false;  ///< looked for after normalisation
  bool takes_space_before = false, takes_space_after = false;
  bool is_single_word = false;  ///< not within a word
};

enum class PieceKind : std::uint8_t {
  kNormal,   ///< made by merging, or a single character
  kByte,     ///< one byte of a character that has no piece
  kSpecial,  ///< stands for no text
  kUser,     ///< only found as an added token
  kUnused,   ///< never made from text
};

/// A pair of symbols that becomes one; equal ranks go from left to right.
struct MergeRule {
  std::uint32_t left, right, result, rank;
};

/// Which pieces get the mark of a WordStep in front, where they do not begin with it.
enum class PrefixScheme : std::uint8_t {
  kNever,
  kFirst,  ///< the one that the text begins with, if nothing before it was taken away
  kAlways  ///< every one: of a first step, the stretches between added tokens
};

/// One step of cutting a stretch of text into words. Each sees the pieces of the one before.
struct WordStep {
  enum class Kind : std::uint8_t {
    kCut,    ///< by an expression
    kMark,   ///< spaces become `mark` (if `marks_spaces`), and pieces get it in front
    kBytes,  ///< every byte becomes a character of byte_alphabet.h
  };
  Kind kind = Kind::kCut;
  Cut cut = {};  ///< its expression as the file has it (expression.h)
  std::string mark = {};
  bool marks_spaces = false;
  PrefixScheme scheme = PrefixScheme::kNever;
};

/// What words start as, where that is told apart from the pieces: as in tokenizer.json, whose added
/// tokens may stand for pieces too. Texts are those of `pieces`: bytes, if `starts_from_bytes`.
struct Alphabet {
  /// What a character starts as, by whether it is the word's first (1), its last (2), or both (3).
  /// One table is enough where nothing is written differently at the ends of words.
  std::array<std::unordered_map<std::string, std::uint32_t>, 4> characters;
  bool knows_ends = false;
  /// Of each byte for characters that have none, in files with all of them or not.
  std::array<std::optional<std::uint32_t>, 256> bytes;
  bool merges_bytes = false;  ///< they take part in merges as well
  /// Whole words that need no merging (`whole_words_first`).
  std::unordered_map<std::string, std::uint32_t> words;
  /// Left and right neighbours of which some merge makes one: last and first character (or byte).
  std::vector<std::pair<char32_t, char32_t>> joins;
};

struct TokenizerSpec {
  /// By id: the bytes that a piece stands for (after normalisation). "" = no such id.
  std::vector<std::string> pieces;
  std::vector<PieceKind> kinds;
  /// Symbols that merging starts from and that have no id: characters that are only part of longer
  /// pieces. They follow the ids of `pieces`.
  std::vector<std::string> extra_symbols;
  std::vector<MergeRule> merges;
  /// Words start as bytes; otherwise as characters.
  bool starts_from_bytes = false;
  /// A word that is a piece needs no merges to reach it.
  bool whole_words_first = false;
  /// Characters without a piece become pieces of bytes.
  bool has_byte_fallback = false;
  /// For what neither pieces nor bytes cover; absent: it vanishes, as in the original.
  std::optional<std::uint32_t> unknown_id;
  bool fuses_unknown = true;  ///< neighbours that are unknown become one id
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  /// Put before the normalised text, before added tokens are looked for in it (SentencePiece).
  std::string prefix;
  std::vector<WordStep> word_steps;
  /// Stands for a space in pieces, which are decoded so; a first one that was put in front is
  /// dropped. "": none.
  std::string space_mark;
  /// As the library tokenizers has it: what is unknown becomes its id before merging. Absent: as in
  /// SentencePiece, from `pieces` and `kinds`, after merging.
  std::optional<Alphabet> alphabet;
  std::vector<std::string> notes;  ///< Tokenizer::notes
  std::optional<std::uint32_t> bos_id;
  bool adds_bos = false;
  std::uint32_t eos_id = 0;
  /// Tokenizer::sha256, where the file has one of its own; "" = a hash of all of the above.
  std::string sha256;
};

/// Makes the tokenizer. `path` is named in errors. Errors: kUnimplemented for an expression that is
/// not taken, or an added token that the library would not take, by name; kDataLoss for ids outside
/// the vocabulary.
Result<std::unique_ptr<Tokenizer>> make_text_tokenizer(TokenizerSpec spec, const std::string& path);

/// U+2581, which stands for a space in the pieces of SentencePiece.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// "<0x0A>" -> 10; nullopt for other pieces.
std::optional<std::uint8_t> byte_of_piece(std::string_view piece);

}  // namespace tailor::tokenizers
