// Constraints: "25 <= d_model / layers <= 500 and d_model % 64 == 0".
//
//   condition   := conjunction ("or" conjunction)*
//   conjunction := negation ("and" negation)*
//   negation    := "not" negation | comparison
//   comparison  := sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)*   chained, as in mathematics
//   sum         := term (("+" | "-") term)*
//   term        := factor (("*" | "/" | "%") factor)*
//   factor      := "-" factor | number | name | "(" condition ")"
//
// Typed: arithmetic and comparisons take numbers, and/or/not take comparisons, the whole is a
// condition. Division by zero gives no error: the comparison with it is false.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::sweep {

/// A parsed condition. A value; evaluation is const and thread-safe.
class Expression {
 public:
  /// A name in the text and where it stands (characters from 1).
  struct Name {
    std::string name;
    std::size_t column = 0;
  };

  /// Errors: kInvalidArgument "... at character 7: ...".
  static Result<Expression> parse(std::string_view text);

  /// Every name, in order of appearance. Only the part behind the last dot counts: "ffn.k" is "k".
  const std::vector<Name>& names() const { return names_; }

  /// Whether the condition holds where `value_of` gives the value of a name.
  bool holds(const std::function<double(std::string_view)>& value_of) const;

 private:
  friend class ExpressionParser;
  enum class Op {
    kNumber,
    kName,
    kNegate,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kModulo,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kEqual,
    kNotEqual,
    kAnd,
    kOr,
    kNot,
  };
  struct Node {
    Op op = Op::kNumber;
    double number = 0;
    std::size_t name = 0;             ///< index into names_
    std::size_t left = 0, right = 0;  ///< indexes into nodes_
  };
  /// The value of `node`, whose parts' values are in `done`.
  static double evaluate(const Node& node, const std::vector<double>& done,
                         const std::vector<double>& values);

  std::vector<Node> nodes_;
  std::vector<Name> names_;
  std::size_t root_ = 0;
};

}  // namespace tailor::sweep
