#include "model/data/json_text.h"

namespace tailor::data {
namespace {

constexpr std::size_t kDepthMax = 512;
constexpr std::string_view kNotJson = "is not JSON";

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void JsonText::start() {
  state_ = State::kStart;
  stack_.clear();
  current_key_.clear();
  wanted_next_ = false;
  found_ = false;
  high_surrogate_ = 0;
}

std::string_view JsonText::feed(std::string_view part, std::string* text) {
  for (std::size_t at = 0; at < part.size();) {
    if (state_ == State::kString) {
      // Most of a line lies between two marks: taken at once.
      std::size_t end = at;
      while (end < part.size() && part[end] != '"' && part[end] != '\\' &&
             static_cast<unsigned char>(part[end]) >= 0x20) {
        ++end;
      }
      put_bytes(part.substr(at, end - at), text);
      at = end;
      if (at == part.size()) break;
    }
    if (const std::string_view wrong = step(part[at], text); !wrong.empty()) return wrong;
    ++at;
  }
  return {};
}

std::string_view JsonText::finish() const {
  if (state_ == State::kStart) return "is not an object";
  if (state_ != State::kEnd) return "is not JSON (it ends too early)";
  if (!found_) return "has no such member";
  return {};
}

void JsonText::put_bytes(std::string_view bytes, std::string* text) {
  if (role_ == Role::kWanted) {
    text->append(bytes);
  } else if (role_ == Role::kKey) {
    current_key_.append(bytes.substr(0, key_.size() + 1 - current_key_.size()));
  }
}

void JsonText::put(std::uint32_t c, std::string* text) {
  std::string bytes;
  const auto add = [&](std::uint32_t byte) { bytes += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | (c >> 6));
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | (c >> 12));
    add(0x80 | ((c >> 6) & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | (c >> 18));
    add(0x80 | ((c >> 12) & 0x3F));
    add(0x80 | ((c >> 6) & 0x3F));
    add(0x80 | (c & 0x3F));
  }
  put_bytes(bytes, text);
}

void JsonText::begin_string(Role role) {
  role_ = role;
  state_ = State::kString;
  if (role == Role::kKey) current_key_.clear();
}

void JsonText::end_string() {
  if (role_ == Role::kKey) wanted_next_ = stack_.size() == 1 && current_key_ == key_;
  state_ = role_ == Role::kKey ? State::kColon : State::kCommaOrEnd;
}

std::string_view JsonText::begin_value(char c) {
  const bool wanted = wanted_next_;
  wanted_next_ = false;
  if (wanted) {
    if (found_) return "has two such members";
    if (c != '"' && !is_space(c)) return "has such a member, but it is no string";
    found_ = true;
  }
  if (c == '"') {
    begin_string(wanted ? Role::kWanted : Role::kOther);
  } else if (c == '{' || c == '[') {
    if (stack_.size() >= kDepthMax) return "is nested too deeply";
    stack_ += c;
    state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
  } else if (c == '-') {
    state_ = State::kMinus;
  } else if (c == '0') {
    state_ = State::kZero;
  } else if (is_digit(c)) {
    state_ = State::kInteger;
  } else if (c == 't' || c == 'f' || c == 'n') {
    literal_left_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    state_ = State::kLiteral;
  } else {
    return kNotJson;
  }
  return {};
}

std::string_view JsonText::end_container(char open) {
  if (stack_.empty() || stack_.back() != open) return kNotJson;
  stack_.pop_back();
  state_ = stack_.empty() ? State::kEnd : State::kCommaOrEnd;
  return {};
}

std::string_view JsonText::step(char c, std::string* text) {
  switch (state_) {
    case State::kStart:
      if (is_space(c)) return {};
      if (c == '{') return begin_value(c);
      // Anything else that may start a value is JSON, but no object.
      return is_digit(c) || c == '[' || c == '"' || c == '-' || c == 't' || c == 'f' || c == 'n'
                 ? "is not an object"
                 : kNotJson;
    case State::kKeyOrEnd:
    case State::kKey:
      if (is_space(c)) return {};
      if (c == '"') {
        begin_string(Role::kKey);
        return {};
      }
      return c == '}' && state_ == State::kKeyOrEnd ? end_container('{') : kNotJson;
    case State::kColon:
      if (is_space(c)) return {};
      if (c != ':') return kNotJson;
      state_ = State::kValue;
      return {};
    case State::kValue:
      return is_space(c) ? std::string_view() : begin_value(c);
    case State::kValueOrEnd:
      if (is_space(c)) return {};
      return c == ']' ? end_container('[') : begin_value(c);
    case State::kCommaOrEnd:
      if (is_space(c)) return {};
      if (c == '}') return end_container('{');
      if (c == ']') return end_container('[');
      if (c != ',') return kNotJson;
      state_ = stack_.back() == '{' ? State::kKey : State::kValue;
      return {};
    case State::kString:
      if (static_cast<unsigned char>(c) < 0x20) return "is not JSON (a bare control character)";
      if (c == '\\') {
        state_ = State::kEscape;
      } else if (c == '"') {
        end_string();
      }
      return {};
    case State::kEscape: {
      constexpr std::string_view kNames = "\"\\/bfnrt";
      constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
      if (c == 'u') {
        state_ = State::kUnicode;
        unicode_ = 0;
        digits_left_ = 4;
        return {};
      }
      const std::size_t at = kNames.find(c);
      if (at == std::string_view::npos) return kNotJson;
      put_bytes(kBytes.substr(at, 1), text);
      state_ = State::kString;
      return {};
    }
    case State::kUnicode: {
      const int digit = hex_value(c);
      if (digit < 0) return kNotJson;
      unicode_ = unicode_ * 16 + static_cast<std::uint32_t>(digit);
      if (--digits_left_ > 0) return {};
      const bool high = unicode_ >= 0xD800 && unicode_ < 0xDC00;
      const bool low = unicode_ >= 0xDC00 && unicode_ < 0xE000;
      if (low != (high_surrogate_ != 0)) return "is not JSON (half a surrogate pair)";
      if (high) {
        high_surrogate_ = unicode_;
        state_ = State::kLowBackslash;
        return {};
      }
      put(low ? 0x10000 + ((high_surrogate_ - 0xD800) << 10) + (unicode_ - 0xDC00) : unicode_,
          text);
      high_surrogate_ = 0;
      state_ = State::kString;
      return {};
    }
    case State::kLowBackslash:
    case State::kLowU:
      if (c != (state_ == State::kLowU ? 'u' : '\\')) return "is not JSON (half a surrogate pair)";
      if (state_ == State::kLowU) {
        unicode_ = 0;
        digits_left_ = 4;
      }
      state_ = state_ == State::kLowU ? State::kUnicode : State::kLowU;
      return {};
    case State::kLiteral:
      if (c != literal_left_.front()) return kNotJson;
      literal_left_.remove_prefix(1);
      if (literal_left_.empty()) state_ = State::kCommaOrEnd;
      return {};
    case State::kMinus:
    case State::kPoint:
    case State::kExponentSign:
      if (!is_digit(c)) return kNotJson;
      state_ = state_ == State::kPoint          ? State::kFraction
               : state_ == State::kExponentSign ? State::kExponentDigits
               : c == '0'                       ? State::kZero
                                                : State::kInteger;
      return {};
    case State::kExponent:
      if (c == '+' || c == '-') {
        state_ = State::kExponentSign;
        return {};
      }
      if (!is_digit(c)) return kNotJson;
      state_ = State::kExponentDigits;
      return {};
    case State::kZero:
    case State::kInteger:
    case State::kFraction:
    case State::kExponentDigits:
      if (is_digit(c) && state_ != State::kZero) return {};
      if (c == '.' && (state_ == State::kZero || state_ == State::kInteger)) {
        state_ = State::kPoint;
        return {};
      }
      if ((c == 'e' || c == 'E') && state_ != State::kExponentDigits) {
        state_ = State::kExponent;
        return {};
      }
      // The number is over; what ended it belongs to what follows.
      state_ = State::kCommaOrEnd;
      return step(c, text);
    case State::kEnd:
      return is_space(c) ? std::string_view() : "is not JSON (something follows the object)";
  }
  return kNotJson;
}

}  // namespace tailor::data
