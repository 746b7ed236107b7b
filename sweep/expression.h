// Constraints, "25 <= d_model / layers <= 500 and d_model % 64 == 0", and numbers by formula,
// "3.4 + 0.15 * (d_h_ratio - 0.45)^2 + 0.04 / k".
//
//   condition   := conjunction ("or" conjunction)*
//   conjunction := negation ("and" negation)*
//   negation    := "not" negation | comparison
//   comparison  := sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)*   chained, as in mathematics
//   sum         := term (("+" | "-") term)*
//   term        := factor (("*" | "/" | "%") factor)*
//   factor      := "-" factor | power
//   power       := primary ("^" factor)?     -2^2 is -4, 2^3^2 is 2^9
//   primary     := number | name | function "(" sum ("," sum)* ")" | "(" condition ")"
//   function    := ln exp sqrt abs (one argument), min max (one or more)
//
// Typed: arithmetic and comparisons take numbers, and/or/not take comparisons; `parse` takes a
// condition, `parse_number` a number. Division by zero, the logarithm of what is not positive and
// the
// like give no error but NaN: a comparison with it is false, and so is min or max of it NaN. The
// names of functions are names where no "(" follows.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::sweep {

/// What is known of a number: it lies in [low, high], or may be NaN.
struct Bounds {
  double low = 0, high = 0;
  bool maybe_nan = false;
  static Bounds exactly(double value);
  static Bounds unknown();
};

/// A parsed condition or number. A value; evaluation is const and thread-safe.
class Expression {
 public:
  /// A name in the text and where it stands (characters from 1).
  struct Name {
    std::string name;
    std::size_t column = 0;
  };

  /// Errors: kInvalidArgument "... at character 7: ...".
  static Result<Expression> parse(std::string_view text);
  /// The same for a number.
  static Result<Expression> parse_number(std::string_view text);

  /// Every name, in order of appearance. Only the part behind the last dot counts: "ffn.k" is "k".
  const std::vector<Name>& names() const { return names_; }

  /// Whether the condition holds where `value_of` gives the value of a name.
  bool holds(const std::function<double(std::string_view)>& value_of) const;
  /// The number. REQUIRES: it came from `parse_number`.
  double value(const std::function<double(std::string_view)>& value_of) const;
  /// False when the condition holds for no values within these bounds; true when it may (interval
  /// arithmetic: a name that stands twice counts as two).
  bool may_hold(const std::function<Bounds(std::string_view)>& bounds_of) const;

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
    kPower,
    kLog,
    kExp,
    kRoot,
    kAbsolute,
    kMin,
    kMax,
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
  static Bounds bound(const Node& node, const std::vector<Bounds>& done,
                      const std::vector<Bounds>& values);
  double run(const std::function<double(std::string_view)>& value_of) const;

  std::vector<Node> nodes_;
  std::vector<Name> names_;
  std::size_t root_ = 0;
};

}  // namespace tailor::sweep
