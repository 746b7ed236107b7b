// What tokenizers need to know of Unicode, by ICU: repair of broken UTF-8, normal forms, cutting by
// regular expressions, and classes of characters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tailor::tokenizers {

/// `text` with U+FFFD for every maximal part of a character that is no UTF-8 (the Unicode Standard,
/// "U+FFFD Substitution of Maximal Subparts": what Python and Rust do).
std::string repaired_utf8(std::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// By the tables of Unicode 9, as the library tokenizers has them: what has come since stays as it
/// is. REQUIRES: valid UTF-8.
std::string normalized(NormalForm form, std::string_view text);

/// Length in bytes of the character that begins at `at`. REQUIRES: valid UTF-8, at < text.size().
std::size_t character_bytes(std::string_view text, std::size_t at);
/// The character that begins at `at`. REQUIRES: valid UTF-8, at < text.size().
char32_t code_point_at(std::string_view text, std::size_t at);
/// The last character of `text`. REQUIRES: valid UTF-8, not empty.
char32_t last_code_point(std::string_view text);
/// Appends `c` as UTF-8.
void append_utf8(char32_t c, std::string* text);
/// White space (the property White_Space), and \w with the joiners (is_word_before).
bool is_white_space(char32_t c);
bool is_word(char32_t c);
/// True for characters that were assigned in that version of Unicode, or before.
bool is_known_to_unicode(int version, char32_t c);
/// `c` does not mix with what comes before it, or behind it, when a text is brought to `form`.
bool begins_apart(NormalForm form, char32_t c);
bool ends_apart(NormalForm form, char32_t c);
/// White space (the property White_Space) that ends at `end`, or begins at `begin`: its bytes.
std::size_t white_space_before(std::string_view text, std::size_t end);
std::size_t white_space_after(std::string_view text, std::size_t begin);
/// True when the character that ends at `end`, or begins at `begin`, is part of a word (\w); false
/// at the ends of the text.
bool is_word_before(std::string_view text, std::size_t end);
bool is_word_after(std::string_view text, std::size_t begin);

/// What becomes of the matches of a regular expression when a text is cut by them; names and
/// meaning are those of Hugging Face's "Split".
enum class CutBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Cut {
  std::string regex;  ///< in ICU's words
  CutBehavior behavior = CutBehavior::kIsolated;
  bool invert = false;  ///< what lies between the matches takes their part
  friend bool operator==(const Cut&, const Cut&) = default;
};

/// Finds what an expression matches. Keeps working memory: one object a thread.
class TextFinder {
 public:
  /// Errors: kInvalidArgument naming the expression that ICU does not take.
  static Result<TextFinder> create(const std::string& regex);
  TextFinder(TextFinder&&) noexcept;
  TextFinder& operator=(TextFinder&&) noexcept;
  ~TextFinder();

  /// The matches, first and behind the last byte, in order and apart; empty ones are left out.
  /// REQUIRES: valid UTF-8.
  std::vector<std::pair<std::size_t, std::size_t>> find(std::string_view text);

 private:
  struct Impl;
  explicit TextFinder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Cuts texts into words by one expression after the other; each sees the pieces of the one before,
/// one at a time. Keeps working memory: one object a thread.
class TextCutter {
 public:
  /// Errors: kInvalidArgument naming the expression that ICU does not take.
  static Result<TextCutter> create(const std::vector<Cut>& cuts);
  TextCutter(TextCutter&&) noexcept;
  TextCutter& operator=(TextCutter&&) noexcept;
  ~TextCutter();
  TextCutter clone() const;

  /// Appends the words of `text`, which point into it. REQUIRES: valid UTF-8.
  void cut(std::string_view text, std::vector<std::string_view>* words);

 private:
  struct Impl;
  explicit TextCutter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::tokenizers
