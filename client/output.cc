#include "client/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/text.h"

namespace tailor::client {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

/// TRIAL_STATE_RUNNING of enum TrialState -> "running".
std::string enum_text(const EnumValueDescriptor* value) {
  std::string prefix;
  for (const char c : value->type()->name()) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0 && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  prefix += '_';
  std::string name = value->name();
  if (name.rfind(prefix, 0) == 0) name.erase(0, prefix.size());
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

/// Field value; `index` < 0 for singular fields.
Json field_json(const Message& m, const FieldDescriptor* f, int index) {
  const Reflection* r = m.GetReflection();
  const bool repeated = index >= 0;
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? r->GetRepeatedInt32(m, f, index) : r->GetInt32(m, f);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? r->GetRepeatedInt64(m, f, index) : r->GetInt64(m, f);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? r->GetRepeatedUInt32(m, f, index) : r->GetUInt32(m, f);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? r->GetRepeatedUInt64(m, f, index) : r->GetUInt64(m, f);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return json_number(repeated ? r->GetRepeatedDouble(m, f, index) : r->GetDouble(m, f));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return json_number(repeated ? r->GetRepeatedFloat(m, f, index) : r->GetFloat(m, f));
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? r->GetRepeatedBool(m, f, index) : r->GetBool(m, f);
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? r->GetRepeatedString(m, f, index) : r->GetString(m, f);
    case FieldDescriptor::CPPTYPE_ENUM:
      return enum_text(repeated ? r->GetRepeatedEnum(m, f, index) : r->GetEnum(m, f));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(repeated ? r->GetRepeatedMessage(m, f, index) : r->GetMessage(m, f));
  }
  return nullptr;
}

/// Text of others is shown, not obeyed: only the colours that a Printer itself writes pass.
std::string shown(std::string_view text) {
  std::string out;
  std::size_t plain = 0;  // start of what is not written yet
  for (std::size_t i = text.find("\033["); i != std::string_view::npos;
       i = text.find("\033[", i + 1)) {
    const std::size_t end = text.find_first_not_of("0123456789", i + 2);
    if (end == std::string_view::npos || text[end] != 'm') continue;
    out += escape_controls(text.substr(plain, i - plain));
    out += text.substr(i, end + 1 - i);
    plain = end + 1;
  }
  return out + escape_controls(text.substr(plain));
}

/// The same for text of several lines.
std::string shown_lines(std::string_view text) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) out += shown(line) + "\n";
  return out;
}

}  // namespace

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json to_json(const Message& message) {
  Json out = Json::object();
  const auto* descriptor = message.GetDescriptor();
  const Reflection* r = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_map()) {
      Json map = Json::object();
      std::vector<std::pair<std::string, Json>> entries;
      for (int k = 0; k < r->FieldSize(message, field); ++k) {
        const Json entry = to_json(r->GetRepeatedMessage(message, field, k));
        const Json& key = entry.at("key");
        entries.emplace_back(key.is_string() ? key.get<std::string>() : key.dump(),
                             entry.at("value"));
      }
      std::sort(entries.begin(), entries.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      for (auto& [key, value] : entries) map[key] = std::move(value);
      out[field->name()] = std::move(map);
    } else if (field->is_repeated()) {
      Json array = Json::array();
      for (int k = 0; k < r->FieldSize(message, field); ++k)
        array.push_back(field_json(message, field, k));
      out[field->name()] = std::move(array);
    } else if (field->has_presence() && !r->HasField(message, field)) {
      out[field->name()] = nullptr;
    } else {
      out[field->name()] = field_json(message, field, -1);
    }
  }
  return out;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string out;
  std::size_t column = 0;  // of the line that is being filled
  const auto new_line = [&] {
    out += '\n' + std::string(indent, ' ');
    column = indent;
  };
  bool first_line = true;
  for (const std::string_view line : split(text, '\n')) {
    if (!std::exchange(first_line, false)) new_line();
    bool first_word = true;
    for (const std::string_view word : split(line, ' ')) {
      const std::size_t width = display_width(word);
      if (!first_word && column + 1 + width > columns) {
        new_line();
      } else if (!first_word) {
        out += ' ';
        ++column;
      }
      out += word;
      column += width;
      first_word = false;
    }
  }
  return out;
}

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++width;
  }
  return width;
}

Printer::Printer(bool json, bool lines, const std::string& color)
    : json_(json || lines), lines_(lines), terminal_(::isatty(STDOUT_FILENO) == 1) {
  const char* no_color = std::getenv("NO_COLOR");
  const bool off = color == "never" || (no_color != nullptr && *no_color != '\0');
  color_ = !json_ && (color == "always" || (terminal_ && !off));
}

void Printer::table(const std::vector<Column>& columns,
                    const std::vector<std::vector<std::string>>& given) const {
  std::vector<std::vector<std::string>> rows = given;
  for (auto& row : rows) {
    for (std::string& cell : row) cell = shown(cell);
  }
  std::string out;
  if (!terminal_) {
    // For scripts: a header line, then tab-separated values, no padding.
    for (std::size_t c = 0; c < columns.size(); ++c) out += (c > 0 ? "\t" : "") + columns[c].title;
    out += '\n';
    for (const auto& row : rows) {
      for (std::size_t c = 0; c < row.size(); ++c) out += (c > 0 ? "\t" : "") + row[c];
      out += '\n';
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
    return;
  }
  std::vector<std::size_t> width(columns.size());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    width[c] = display_width(columns[c].title);
    for (const auto& row : rows) width[c] = std::max(width[c], display_width(row[c]));
  }
  const auto append = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string padding(width[c] - display_width(cells[c]), ' ');
      if (c > 0) text += "  ";
      text += columns[c].align == Align::kRight ? padding + cells[c] : cells[c] + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.push_back(bold(column.title));
  append(titles);
  for (const auto& row : rows) append(row);
  std::fwrite(out.data(), 1, out.size(), stdout);
}

void Printer::document(const Json& json) const {
  const std::string text =
      json.dump(lines_ ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void Printer::list_document(const Json& json, std::string_view list) const {
  if (!lines_) return document(json);
  for (const Json& entry : json.at(std::string(list))) document(entry);
}

void Printer::line(std::string_view text) const {
  const std::string out = shown_lines(text);
  std::fwrite(out.data(), 1, out.size(), stdout);
}

void Printer::note(std::string_view text) const {
  std::fflush(stdout);
  std::fputs(shown_lines(text).c_str(), stderr);
}

std::string Printer::state(const std::string& text) const {
  if (!color_) return text;
  const char* color = "0";
  if (text == "completed") color = "32";
  if (text == "running") color = "36";
  if (text == "failed" || text == "infeasible") color = "31";
  if (text == "paused" || text == "stopped" || text == "cancelled" || text == "draining")
    color = "33";
  return fmt::format("\033[{}m{}\033[0m", color, text);
}

std::string Printer::bold(const std::string& text) const {
  return color_ ? "\033[1m" + text + "\033[0m" : text;
}

}  // namespace tailor::client
