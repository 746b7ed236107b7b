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
  /// `lines`: JSON comes as one document a line.
  Printer(bool json, bool lines, const std::string& color);

  bool json() const { return json_; }
  bool json_lines() const { return lines_; }
  /// True when stdout is a terminal.
  bool terminal() const { return terminal_; }
  bool colored() const { return color_; }

  // Control characters in what is printed are spelled out, but for colours: names and messages come
  // from others, and a cell must not break its line.

  /// Rows must have as many cells as there are columns.
  void table(const std::vector<Column>& columns,
             const std::vector<std::vector<std::string>>& given) const;
  /// One JSON document, indented (with `lines`: on one line), and a newline.
  void document(const Json& json) const;
  /// The document of a list: with `lines` the entries of its member `list`, one a line, and nothing
  /// of what stands beside them.
  void list_document(const Json& json, std::string_view list) const;
  /// A line of plain text on stdout.
  void line(std::string_view text) const;
  /// A line on stderr.
  void note(std::string_view text) const;

  /// `text` in the colour of a state ("completed" green, "failed" red, ...), when colours are on.
  std::string state(const std::string& text) const;
  std::string bold(const std::string& text) const;

 private:
  bool json_;
  bool lines_;
  bool terminal_;
  bool color_;
};

/// `text` in lines of at most `columns`, broken at spaces; a longer word has a line of its own.
/// Lines after the first begin with `indent` spaces. Line ends in `text` stay.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);
/// Columns of the terminal that stdout is; 80 when it is none or does not say.
std::size_t terminal_columns();

/// Width of a UTF-8 text on a terminal in code points, escape sequences not counted.
std::size_t display_width(std::string_view text);

}  // namespace tailor::client
