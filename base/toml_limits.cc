#include "base/toml_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tailor {
namespace {

/// Knows strings, comments, headers, keys and brackets; the rest of TOML is of no depth.
class TomlScan {
 public:
  TomlScan(std::string_view text, const TomlLimits& limits) : text_(text), limits_(limits) {}

  std::optional<TomlExcess> run() {
    if (text_.size() > limits_.bytes) {
      return TomlExcess{0, 0,
                        fmt::format("has {} bytes; allowed: up to {}",
                                    with_thousands(static_cast<std::int64_t>(text_.size())),
                                    with_thousands(static_cast<std::int64_t>(limits_.bytes)))};
    }
    bool begins_statement = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++at_;
        ++line_;
        line_begin_ = at_;
        if (open_.empty()) {
          next_key();
          begins_statement = true;
        }
        continue;
      }
      if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (begins_statement && c == '[') {
        if (!header_has_a_name()) return excess("a table's name is missing behind the '['");
        read_header();
      } else if (c == '"' || c == '\'') {
        skip_string();
      } else {
        read_sign(c);
      }
      begins_statement = false;
      if (depth() > limits_.depth) {
        return excess(
            fmt::format("keys, lists and tables are nested more than {} deep", limits_.depth));
      }
      if (values_ > limits_.values) {
        return excess(fmt::format("more than {} keys and values",
                                  with_thousands(static_cast<std::int64_t>(limits_.values))));
      }
    }
    return std::nullopt;
  }

 private:
  std::size_t base() const { return open_.empty() ? header_ : open_.back(); }
  std::size_t depth() const { return base() + key_parts_ + dots_ + 1; }

  void next_key() { key_parts_ = dots_ = 0; }

  void read_sign(char c) {
    ++at_;
    switch (c) {
      case '.':  // of a number or a date too, which makes no difference
        ++dots_;
        ++values_;
        break;
      case '=':
        key_parts_ += dots_ + 1;
        dots_ = 0;
        ++values_;
        break;
      case '[':
      case '{':
        open_.push_back(depth());
        next_key();
        ++values_;
        break;
      case ']':
      case '}':
        if (!open_.empty()) open_.pop_back();
        next_key();
        break;
      case ',':
        next_key();
        ++values_;
        break;
      default:
        break;
    }
  }

  bool header_has_a_name() const {
    std::size_t at = at_ + 1;
    if (at < text_.size() && text_[at] == '[') ++at;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    if (at == text_.size()) return false;
    const auto c = static_cast<unsigned char>(text_[at]);
    return c >= 0x80 || std::isalnum(c) != 0 || c == '_' || c == '-' || c == '"' || c == '\'';
  }

  /// "[a.b]" or "[[a.b]]" up to its last bracket; tables below start as deep as it says.
  void read_header() {
    header_ = 0;
    next_key();
    ++values_;
    for (; at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '#';) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string();
        continue;
      }
      if (c == '.' || c == '[') ++header_;
      if (c == '.') ++values_;
      ++at_;
      if (header_ > limits_.depth) return;
    }
  }

  void skip_string() {
    const char quote = text_[at_];
    const std::string_view three = text_.substr(at_, 3);
    const bool is_long = three.size() == 3 && three[1] == quote && three[2] == quote;
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        if (!is_long) return;  // not closed: the parser will say so
        ++line_;
        line_begin_ = at_ + 1;
      } else if (c == '\\' && quote == '"') {
        ++at_;
        if (at_ < text_.size() && text_[at_] == '\n') continue;  // counts as a line above
      } else if (c == quote) {
        if (!is_long) {
          ++at_;
          return;
        }
        if (text_.substr(at_ + 1, 2) == std::string_view(three.substr(1))) {
          at_ += 3;
          // Up to two more quotes belong to the text.
          for (int more = 0; more < 2 && at_ < text_.size() && text_[at_] == quote; ++more) ++at_;
          return;
        }
      }
      if (at_ < text_.size()) ++at_;
    }
  }

  /// At the byte that was read last.
  TomlExcess excess(std::string what) const {
    return {line_, std::max<std::size_t>(1, at_ - line_begin_), std::move(what)};
  }

  std::string_view text_;
  const TomlLimits& limits_;
  std::size_t at_ = 0, line_ = 1, line_begin_ = 0;
  std::size_t values_ = 0;
  std::size_t header_ = 0;         // depth of the table that the last header opened
  std::size_t key_parts_ = 0;      // of the key before the '='
  std::size_t dots_ = 0;           // of the key or value that is being read
  std::vector<std::size_t> open_;  // depth within each open bracket
};

}  // namespace

std::optional<TomlExcess> find_toml_excess(std::string_view text, const TomlLimits& limits) {
  return TomlScan(text, limits).run();
}

}  // namespace tailor
