// JsonText: takes one string out of a JSON object that comes in parts, and checks the whole object.
//
// A line of a .jsonl file may be longer than memory allows, so nothing is built of it: the text of
// the wanted member is handed on as it is decoded. Grammar: RFC 8259; nesting up to 512.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tailor::data {

/// Not thread-safe.
class JsonText {
 public:
  /// `key`: the member of the outermost object whose string is wanted.
  explicit JsonText(std::string key) : key_(std::move(key)) {}

  /// Forgets everything: the next part is the start of another line.
  void start();

  /// Takes the next part of the line and appends what it holds of the wanted text to `*text`.
  /// `part` is well-formed UTF-8 of whole characters. Returns "" or what is wrong, such as "is not
  /// JSON"; after that only `start` may follow.
  std::string_view feed(std::string_view part, std::string* text);

  /// Called at the line's end. Returns "" when it was one object with the wanted string,
  /// else what is wrong.
  std::string_view finish() const;

 private:
  enum class State : std::uint8_t {
    kStart,         // before the object
    kKeyOrEnd,      // after {
    kKey,           // after a comma in an object
    kColon,         // after a key
    kValue,         // before a value
    kValueOrEnd,    // after [
    kCommaOrEnd,    // after a value
    kString,        // inside a string
    kEscape,        // after a backslash
    kUnicode,       // inside the four digits of \u
    kLowBackslash,  // after a high surrogate
    kLowU,          // after that one's backslash
    kLiteral,       // inside true, false, null
    kMinus,         // number: after -
    kZero,          // after a leading 0
    kInteger,       // among the digits
    kPoint,         // after .
    kFraction,      // among its digits
    kExponent,      // after e
    kExponentSign,  // after e+
    kExponentDigits,
    kEnd,  // after the object
  };
  enum class Role : std::uint8_t { kKey, kWanted, kOther };

  std::string_view step(char c, std::string* text);
  std::string_view begin_value(char c);
  std::string_view end_container(char open);
  void begin_string(Role role);
  void end_string();
  void put(std::uint32_t code_point, std::string* text);
  void put_bytes(std::string_view bytes, std::string* text);

  std::string key_;
  State state_ = State::kStart;
  Role role_ = Role::kOther;
  std::string stack_;         // the open containers, '{' or '['
  std::string current_key_;   // of the outermost object, up to one byte more than key_
  bool wanted_next_ = false;  // the value that comes is the wanted one
  bool found_ = false;
  std::uint32_t unicode_ = 0;
  std::uint32_t high_surrogate_ = 0;
  int digits_left_ = 0;
  std::string_view literal_left_;
};

}  // namespace tailor::data
