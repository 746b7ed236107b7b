// Printing: an aligned table on a terminal, tab-separated text in a pipe, one JSON document with
// --json. Data goes to stdout, messages and progress to stderr. NO_COLOR and --color are respected.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tailor::client {

using Json = nlohmann::ordered_json;

/// A protobuf message as JSON: field names as in the .proto, 64-bit integers as numbers, enum
/// values as their lower-case last words ("running"), unset optional fields as null, NaN and
/// infinities as the strings "NaN", "Infinity", "-Infinity".
Json to_json(const google::protobuf::Message& message);

/// A number that JSON may not be able to hold (see to_json).
Json json_number(double value);

enum class Align { kLeft, kRight };
struct Column {
  std::string title;
  Align align = Align::kLeft;
};

class Printer {
 public:
  Printer(bool json, const std::string& color);

  bool json() const { return json_; }
  /// True when stdout is a terminal.
  bool terminal() const { return terminal_; }
  bool colored() const { return color_; }

  // Control characters in what is printed are spelled out, but for colours: names and messages come
  // from others, and a cell must not break its line.

  /// Rows must have as many cells as there are columns.
  void table(const std::vector<Column>& columns,
             const std::vector<std::vector<std::string>>& given) const;
  /// One JSON document, indented, and a newline.
  void document(const Json& json) const;
  /// A line of plain text on stdout.
  void line(std::string_view text) const;
  /// A line on stderr.
  void note(std::string_view text) const;

  /// `text` in the colour of a state ("completed" green, "failed" red, ...), when colours are on.
  std::string state(const std::string& text) const;
  std::string bold(const std::string& text) const;

 private:
  bool json_;
  bool terminal_;
  bool color_;
};

/// Width of a UTF-8 text on a terminal in code points, escape sequences not counted.
std::size_t display_width(std::string_view text);

}  // namespace tailor::client
