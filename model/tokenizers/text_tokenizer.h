// TextTokenizer: the tokenizers of published models, whatever file they come from. A TokenizerSpec
// says everything; json.cc, gguf.cc and sentencepiece.cc read one.
//
// A text goes through the steps of Hugging Face's tokenizers (or of SentencePiece, which are
// fewer): repair of broken UTF-8; tokens that are matched in the text as it is; normalisation;
// tokens that are matched in the normalised text; cutting into words;
// byte-pair merging of each word.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
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

/// One step of normalisation: `from` becomes `to`; `to` is put in front when `from` is empty;
/// or a normal form.
struct NormalizerStep {
  std::optional<NormalForm> form;
  std::string from, to;
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

/// Where `TokenizerSpec::prefix` goes.
enum class PrefixRule {
  kFirst,  ///< before the text's first stretch, if it does not begin so and is no added token
  kEvery,  ///< before every stretch between added tokens that does not begin so
  kAlways  ///< before the text whatever it begins with, and before added tokens are looked for
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
  std::string prefix;  ///< put before the normalised text
  PrefixRule prefix_rule = PrefixRule::kFirst;
  /// U+2581 stands for a space: pieces are decoded so,
  /// and a first space that `prefix` made is dropped.
  bool marks_spaces = false;
  std::vector<Cut> cuts;
  std::optional<std::uint32_t> bos_id;
  bool adds_bos = false;
  std::uint32_t eos_id = 0;
  /// Tokenizer::sha256, where the file has one of its own; "" = a hash of all of the above.
  std::string sha256;
};

/// Makes the tokenizer. `path` is named in errors. Errors: kInvalidArgument for an expression that
/// is not understood; kDataLoss for ids outside the vocabulary.
Result<std::unique_ptr<Tokenizer>> make_text_tokenizer(TokenizerSpec spec, const std::string& path);

/// U+2581, which stands for a space in the pieces of SentencePiece.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// "<0x0A>" -> 10; nullopt for other pieces.
std::optional<std::uint8_t> byte_of_piece(std::string_view piece);

}  // namespace tailor::tokenizers
