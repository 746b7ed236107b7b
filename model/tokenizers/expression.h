// Expression: a regular expression of a tokenizer file. Those are written for Oniguruma; ICU runs
// them here. Only what means the same to both, or can be said in ICU's words, is taken.
//
// What is taken: characters and escapes of them, . \s \d \w and their opposites, \p{...} of general
// categories and some scripts, classes (nested ones are unions), groups, (?i:...) around plain
// characters, alternatives, greedy, lazy and possessive repetition, and looking ahead or behind.
// Anchors, word boundaries, references to groups and other flags are refused by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailor::tokenizers {

class Expression {
 public:
  /// Errors: kUnimplemented naming the expression and what in it is not taken.
  static Result<Expression> parse(std::string_view pattern);

  /// The same expression for ICU.
  const std::string& icu() const;

  // What can be said of any text from the expression alone; where in doubt the answer is the one
  // that promises less. Cost: linear in the length of the expression (squared for `joins`).

  /// A match may hold `a` and right behind it `b`, or looks at what follows `a`.
  bool joins(char32_t a, char32_t b) const;
  /// Where matching begins at `c` something matches: `c` is never between matches.
  bool always_matches(char32_t c) const;
  /// `c` may be part of a match.
  bool touches(char32_t c) const;

 private:
  struct Impl;
  explicit Expression(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

/// The expression that matches `text` and nothing else.
std::string literal_expression(std::string_view text);

}  // namespace tailor::tokenizers
