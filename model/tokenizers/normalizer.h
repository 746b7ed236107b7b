// Normalizer: the steps that Hugging Face's tokenizers puts a text through before it is cut, in the
// order of the file. SentencePiece's own is one of them (spaces become U+2581).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizers/unicode_text.h"

namespace tailor::tokenizers {

struct NormalizerStep {
  enum class Kind : std::uint8_t {
    kForm,             ///< a normal form
    kReplace,          ///< `from`, a text, becomes `to`
    kReplaceMatches,   ///< what the expression `from` matches becomes `to` (expression.h)
    kPrepend,          ///< `to` goes in front of a text that is not empty
    kLowercase,        ///< character by character
    kStrip,            ///< white space at the ends goes, as `left` and `right` say
    kStripAccents,     ///< marks go
    kStripNonspacing,  ///< marks without width go
    kCleanText,        ///< control characters and U+FFFD go, white space becomes a space
    kPadHan,           ///< a space on both sides of every Chinese character
    kNmt               ///< as SentencePiece's "nmt": some control characters go or become spaces
  };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  std::string from = {}, to = {};
  bool left = false, right = false;
};

/// Steps at work. Keeps working memory of its expressions: one object a thread.
class Normalizer {
 public:
  /// Errors: kUnimplemented naming an expression that is not taken.
  static Result<Normalizer> create(std::vector<NormalizerStep> steps);
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();
  Normalizer clone() const;

  bool is_empty() const;

  /// Which part of a text is normalised: a part that does not begin the text gets nothing in front
  /// and loses no white space there, likewise at the end.
  struct Part {
    bool begins = true, ends = true;
  };
  /// REQUIRES: valid UTF-8. `*head`: of the bytes of `text` from its begin on, how many stem from
  /// its first character; becomes the same for the result, as Hugging Face's alignments count it.
  std::string apply(std::string_view text, Part part, std::size_t* head) const;
  std::string apply(std::string_view text) const {
    std::size_t head = 0;
    return apply(text, {}, &head);
  }

  /// True when a text that holds `a` and right behind it `b` may be cut between: the parts, brought
  /// through `apply` one by one, make the whole. `*a` and `*b` become the neighbours in the result.
  bool may_cut(char32_t* a, char32_t* b) const;
  /// True when what lies at the begin or end of a part is treated in a way of its own.
  bool knows_ends() const;

 private:
  struct Impl;
  explicit Normalizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::tokenizers
