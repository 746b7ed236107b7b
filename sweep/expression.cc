// A recursive-descent parser over the grammar of expression.h;
// conditions are 0 or 1 when evaluated.
#include "sweep/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace tailor::sweep {
namespace {

/// Deeper nesting is refused: recursion follows it.
constexpr int kDepthMax = 64;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

/// x ^ y; NaN where it is not a real number.
double power(double x, double y) { return std::pow(x, y); }

/// Bounds of `f` over the corners of two intervals. REQUIRES: f is monotone in each argument there.
template <typename F>
Bounds of_corners(const Bounds& a, const Bounds& b, F f) {
  Bounds out{kUnbounded, -kUnbounded, a.maybe_nan || b.maybe_nan};
  for (const double x : {a.low, a.high}) {
    for (const double y : {b.low, b.high}) {
      const double value = f(x, y);
      if (std::isnan(value)) return Bounds::unknown();  // inf - inf, 0 * inf
      out.low = std::min(out.low, value);
      out.high = std::max(out.high, value);
    }
  }
  return out;
}

/// A condition: 1 = it may hold, 0 = it may not hold.
Bounds truth(bool may_hold, bool may_fail) {
  return {may_fail ? 0.0 : 1.0, may_hold ? 1.0 : 0.0, false};
}

}  // namespace

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Result<Expression> run(bool number) {
    const auto root = condition();
    if (!root) return error(status_);
    skip_blanks();
    if (at_ < text_.size())
      return error(fail(at_, fmt::format("'{}' is not expected here", text_[at_])));
    if (number && root->is_condition) {
      return error(fail(0, "this is a condition, not a number"));
    }
    if (!number && !root->is_condition) {
      return error(fail(0, "this is a number, not a condition; compare it with something"));
    }
    out_.root_ = root->node;
    return std::move(out_);
  }

 private:
  using Op = Expression::Op;
  /// A parsed part and its type.
  struct Part {
    std::size_t node = 0;
    bool is_condition = false;
    std::size_t start = 0;
  };
  using Parsed = std::optional<Part>;

  Status fail(std::size_t offset, std::string_view message) {
    if (status_.is_ok()) {
      status_ = Status(Code::kInvalidArgument,
                       fmt::format("\"{}\" at character {}: {}", text_, offset + 1, message));
    }
    return status_;
  }
  Parsed none(std::size_t offset, std::string_view message) {
    (void)fail(offset, message);
    return std::nullopt;
  }

  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool take(std::string_view symbol) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    const std::size_t after = at_ + symbol.size();
    if (is_letter(symbol.front()) && after < text_.size() &&
        (is_letter(text_[after]) || is_digit(text_[after]))) {
      return false;  // "order" is no "or"
    }
    at_ = after;
    return true;
  }

  Part add(Op op, std::size_t left, std::size_t right, bool is_condition, std::size_t start) {
    out_.nodes_.push_back({op, 0, 0, left, right});
    return {out_.nodes_.size() - 1, is_condition, start};
  }

  bool require(const Part& part, bool condition, std::string_view where) {
    if (part.is_condition == condition) return true;
    (void)fail(part.start,
               fmt::format("{} needs {} here", where, condition ? "a condition" : "a number"));
    return false;
  }

  Parsed condition() { return joined("or", Op::kOr, &ExpressionParser::conjunction); }
  Parsed conjunction() { return joined("and", Op::kAnd, &ExpressionParser::negation); }

  Parsed joined(std::string_view word, Op op, Parsed (ExpressionParser::*next)()) {
    Parsed left = (this->*next)();
    while (left && take(word)) {
      const Parsed right = (this->*next)();
      if (!right) return std::nullopt;
      if (!require(*left, true, word) || !require(*right, true, word)) return std::nullopt;
      left = add(op, left->node, right->node, true, left->start);
    }
    return left;
  }

  Parsed negation() {
    skip_blanks();
    const std::size_t start = at_;
    if (!take("not")) return comparison();
    if (++depth_ > kDepthMax) return none(start, "this is nested too deeply");
    const Parsed inner = negation();
    --depth_;
    if (!inner || !require(*inner, true, "not")) return std::nullopt;
    return add(Op::kNot, inner->node, inner->node, true, start);
  }

  std::optional<Op> comparison_sign() {
    // The longer signs first.
    static constexpr std::pair<std::string_view, Op> kSigns[] = {
        {"<=", Op::kLessEqual}, {">=", Op::kGreaterEqual}, {"==", Op::kEqual},
        {"!=", Op::kNotEqual},  {"<", Op::kLess},          {">", Op::kGreater}};
    for (const auto& [sign, op] : kSigns) {
      if (take(sign)) return op;
    }
    return std::nullopt;
  }

  Parsed comparison() {
    Parsed left = sum();
    if (!left) return left;
    Parsed all;
    for (;;) {
      skip_blanks();
      const std::size_t sign_at = at_;
      const auto op = comparison_sign();
      if (!op) {
        if (at_ < text_.size() && text_[at_] == '=') return none(sign_at, "use == to compare");
        return all ? all : left;
      }
      const Parsed right = sum();
      if (!right) return std::nullopt;
      if (!require(*left, false, "a comparison") || !require(*right, false, "a comparison")) {
        return std::nullopt;
      }
      const Part one = add(*op, left->node, right->node, true, left->start);
      all = all ? add(Op::kAnd, all->node, one.node, true, all->start) : one;
      left = right;
    }
  }

  Parsed sum() {
    Parsed left = term();
    while (left) {
      const bool plus = take("+");
      if (!plus && !take("-")) return left;
      left = arithmetic(*left, term(), plus ? Op::kAdd : Op::kSubtract);
    }
    return left;
  }

  Parsed term() {
    Parsed left = factor();
    while (left) {
      Op op = Op::kMultiply;
      if (take("*")) {
        op = Op::kMultiply;
      } else if (take("/")) {
        op = Op::kDivide;
      } else if (take("%")) {
        op = Op::kModulo;
      } else {
        return left;
      }
      left = arithmetic(*left, factor(), op);
    }
    return left;
  }

  Parsed arithmetic(const Part& left, const Parsed& right, Op op) {
    if (!right) return std::nullopt;
    if (!require(left, false, "arithmetic") || !require(*right, false, "arithmetic"))
      return std::nullopt;
    return add(op, left.node, right->node, false, left.start);
  }

  Parsed factor() {
    skip_blanks();
    const std::size_t start = at_;
    if (++depth_ > kDepthMax) return none(start, "this is nested too deeply");
    Parsed out = factor_inside(start);
    --depth_;
    return out;
  }

  Parsed factor_inside(std::size_t start) {
    if (start == text_.size()) return none(start, "a number, a name or '(' is missing at the end");
    if (take("-")) {
      const Parsed inner = factor();
      if (!inner || !require(*inner, false, "a minus sign")) return std::nullopt;
      return add(Op::kNegate, inner->node, inner->node, false, start);
    }
    return power_of(primary(start));
  }

  Parsed power_of(const Parsed& base) {
    if (!base || !take("^")) return base;
    return arithmetic(*base, factor(), Op::kPower);
  }

  Parsed primary(std::size_t start) {
    if (take("(")) {
      Parsed inner = condition();
      if (!inner) return inner;
      if (!take(")"))
        return none(at_, fmt::format("the '(' at character {} is not closed", start + 1));
      inner->start = start;
      return inner;
    }
    const char c = text_[start];
    if (is_digit(c) || c == '.') return number(start);
    if (is_letter(c)) return name(start);
    return none(start,
                fmt::format("'{}' is not expected here; allowed: a number, a name or '('", c));
  }

  Parsed number(std::size_t start) {
    // TOML people write 113_246_208.
    std::string digits;
    std::size_t end = start;
    while (end < text_.size() && (is_digit(text_[end]) || text_[end] == '.' || text_[end] == '_')) {
      if (text_[end] != '_') digits += text_[end];
      ++end;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      digits += text_[end++];
      if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) {
        if (text_[end] == '-') digits += '-';
        ++end;
      }
      while (end < text_.size() && is_digit(text_[end])) digits += text_[end++];
    }
    double value = 0;
    const auto [stop, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failure != std::errc() || stop != digits.data() + digits.size() ||
        (end < text_.size() && is_letter(text_[end]))) {
      return none(start, "this is no number");
    }
    at_ = end;
    Part part = add(Op::kNumber, 0, 0, false, start);
    out_.nodes_.back().number = value;
    return part;
  }

  Parsed name(std::size_t start) {
    std::size_t end = start;
    while (end < text_.size() &&
           (is_letter(text_[end]) || is_digit(text_[end]) || text_[end] == '.')) {
      ++end;
    }
    const std::string_view whole = text_.substr(start, end - start);
    for (const std::string_view word : {"and", "or", "not"}) {
      if (whole == word) return none(start, fmt::format("'{}' is not expected here", word));
    }
    at_ = end;
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '(') return function(whole, start);
    at_ = end;
    Part part = add(Op::kName, 0, 0, false, start);
    out_.nodes_.back().name = out_.names_.size();
    out_.names_.push_back({std::string(whole.substr(whole.rfind('.') + 1)), start + 1});
    return part;
  }

  Parsed function(std::string_view called, std::size_t start) {
    struct Function {
      std::string_view name;
      Op op;
      bool many;
    };
    static constexpr std::array kFunctions = {
        Function{"ln", Op::kLog, false},    Function{"exp", Op::kExp, false},
        Function{"sqrt", Op::kRoot, false}, Function{"abs", Op::kAbsolute, false},
        Function{"min", Op::kMin, true},    Function{"max", Op::kMax, true}};
    const auto known = std::find_if(kFunctions.begin(), kFunctions.end(),
                                    [&](const Function& f) { return f.name == called; });
    if (known == kFunctions.end()) {
      return none(start, fmt::format("there is no function '{}'; allowed: ln, exp, sqrt, abs, min, "
                                     "max",
                                     called));
    }
    const std::size_t open = at_++;
    Parsed all;
    int arguments = 0;
    do {
      const Parsed argument = sum();
      if (!argument || !require(*argument, false, called)) return std::nullopt;
      ++arguments;
      all = all ? add(known->op, all->node, argument->node, false, start) : *argument;
    } while (take(","));
    if (!take(")")) {
      return none(at_, fmt::format("the '(' at character {} is not closed", open + 1));
    }
    if (known->many) return all;
    if (arguments > 1) return none(start, fmt::format("{} takes one number", called));
    return add(known->op, all->node, all->node, false, start);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Status status_;
  Expression out_;
};

Result<Expression> Expression::parse(std::string_view text) {
  if (text.size() > 2'000) {
    return error(Code::kInvalidArgument,
                 fmt::format("a constraint has {} characters; allowed: up to 2,000", text.size()));
  }
  return ExpressionParser(text).run(false);
}

Result<Expression> Expression::parse_number(std::string_view text) {
  if (text.size() > 2'000) {
    return error(Code::kInvalidArgument,
                 fmt::format("an expression has {} characters; allowed: up to 2,000", text.size()));
  }
  return ExpressionParser(text).run(true);
}

Bounds Bounds::exactly(double value) {
  return std::isnan(value) ? unknown() : Bounds{value, value, false};
}

Bounds Bounds::unknown() { return {-kUnbounded, kUnbounded, true}; }

double Expression::evaluate(const Node& node, const std::vector<double>& done,
                            const std::vector<double>& values) {
  const double a = done[node.left], b = done[node.right];
  switch (node.op) {
    case Op::kNumber:
      return node.number;
    case Op::kName:
      return values[node.name];
    case Op::kNegate:
      return -a;
    case Op::kNot:
      return a != 0 ? 0 : 1;
    case Op::kAnd:
      return a != 0 && b != 0;
    case Op::kOr:
      return a != 0 || b != 0;
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return b == 0 ? std::nan("") : a / b;
    case Op::kModulo:
      return b == 0 ? std::nan("") : std::fmod(a, b);
    case Op::kPower:
      return power(a, b);
    case Op::kLog:
      return a > 0 ? std::log(a) : std::nan("");
    case Op::kExp:
      return std::exp(a);
    case Op::kRoot:
      return std::sqrt(a);
    case Op::kAbsolute:
      return std::abs(a);
    case Op::kMin:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
    case Op::kMax:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
    case Op::kLess:
      return a < b;
    case Op::kLessEqual:
      return a <= b;
    case Op::kGreater:
      return a > b;
    case Op::kGreaterEqual:
      return a >= b;
    case Op::kEqual:
      return a == b;
    case Op::kNotEqual:
      return a < b || a > b;  // false for NaN, as every comparison
  }
  return 0;
}

Bounds Expression::bound(const Node& node, const std::vector<Bounds>& done,
                         const std::vector<Bounds>& values) {
  const Bounds& a = done[node.left];
  const Bounds& b = done[node.right];
  const bool nan = a.maybe_nan || b.maybe_nan;
  const auto monotone = [&](double (*f)(double)) {
    return Bounds{f(a.low), f(a.high), a.maybe_nan};
  };
  switch (node.op) {
    case Op::kNumber:
      return Bounds::exactly(node.number);
    case Op::kName:
      return values[node.name];
    case Op::kNegate:
      return {-a.high, -a.low, a.maybe_nan};
    case Op::kNot:
      return {1 - a.high, 1 - a.low, false};
    case Op::kAnd:
      return {std::min(a.low, b.low), std::min(a.high, b.high), false};
    case Op::kOr:
      return {std::max(a.low, b.low), std::max(a.high, b.high), false};
    case Op::kAdd:
      return of_corners(a, b, [](double x, double y) { return x + y; });
    case Op::kSubtract:
      return of_corners(a, b, [](double x, double y) { return x - y; });
    case Op::kMultiply:
      return of_corners(a, b, [](double x, double y) { return x * y; });
    case Op::kDivide:
      if (b.low <= 0 && b.high >= 0) return Bounds::unknown();
      return of_corners(a, b, [](double x, double y) { return x / y; });
    case Op::kModulo:
      if (a.low == a.high && b.low == b.high && b.low != 0) {
        return {std::fmod(a.low, b.low), std::fmod(a.low, b.low), nan};
      }
      if (a.low >= 0 && b.low > 0) return {0, std::min(a.high, b.high), nan};
      return Bounds::unknown();
    case Op::kPower:
      if (a.low == a.high && b.low == b.high) {
        const double value = power(a.low, b.low);
        return std::isnan(value) ? Bounds::unknown() : Bounds{value, value, nan};
      }
      if (a.low > 0) return of_corners(a, b, power);
      if (b.low == 2 && b.high == 2) {
        const double most = std::max(a.low * a.low, a.high * a.high);
        const double least =
            a.low <= 0 && a.high >= 0 ? 0.0 : std::min(a.low * a.low, a.high * a.high);
        return {least, most, nan};
      }
      return Bounds::unknown();
    case Op::kLog:
      if (a.high <= 0) return Bounds::unknown();
      return {a.low > 0 ? std::log(a.low) : -kUnbounded, std::log(a.high), nan || a.low <= 0};
    case Op::kExp:
      return monotone([](double x) { return std::exp(x); });
    case Op::kRoot:
      if (a.high < 0) return Bounds::unknown();
      return {std::sqrt(std::max(0.0, a.low)), std::sqrt(a.high), nan || a.low < 0};
    case Op::kAbsolute: {
      const double most = std::max(std::abs(a.low), std::abs(a.high));
      const bool crosses = a.low <= 0 && a.high >= 0;
      return {crosses ? 0.0 : std::min(std::abs(a.low), std::abs(a.high)), most, nan};
    }
    case Op::kMin:
      return {std::min(a.low, b.low), std::min(a.high, b.high), nan};
    case Op::kMax:
      return {std::max(a.low, b.low), std::max(a.high, b.high), nan};
    case Op::kLess:
      return truth(a.low < b.high, nan || !(a.high < b.low));
    case Op::kLessEqual:
      return truth(a.low <= b.high, nan || !(a.high <= b.low));
    case Op::kGreater:
      return truth(a.high > b.low, nan || !(a.low > b.high));
    case Op::kGreaterEqual:
      return truth(a.high >= b.low, nan || !(a.low >= b.high));
    case Op::kEqual: {
      const bool one = a.low == a.high && b.low == b.high && a.low == b.low;
      return truth(a.low <= b.high && b.low <= a.high, nan || !one);
    }
    case Op::kNotEqual: {
      const bool one = a.low == a.high && b.low == b.high && a.low == b.low;
      const bool apart = a.high < b.low || b.high < a.low;
      return truth(!one, nan || !apart);
    }
  }
  return Bounds::unknown();
}

double Expression::run(const std::function<double(std::string_view)>& value_of) const {
  std::vector<double> values;
  values.reserve(names_.size());
  for (const Name& name : names_) values.push_back(value_of(name.name));
  // A node stands behind its parts, so one pass has them ready however long a chain is.
  std::vector<double> done(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) done[i] = evaluate(nodes_[i], done, values);
  return done[root_];
}

bool Expression::holds(const std::function<double(std::string_view)>& value_of) const {
  return run(value_of) != 0;
}

double Expression::value(const std::function<double(std::string_view)>& value_of) const {
  return run(value_of);
}

bool Expression::may_hold(const std::function<Bounds(std::string_view)>& bounds_of) const {
  std::vector<Bounds> values;
  values.reserve(names_.size());
  for (const Name& name : names_) values.push_back(bounds_of(name.name));
  std::vector<Bounds> done(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) done[i] = bound(nodes_[i], done, values);
  return done[root_].high != 0;
}

}  // namespace tailor::sweep
