// nlohmann's reader calls a handler of ours, which counts, refuses names that come twice and builds
// the value. The reader itself keeps its nesting on the heap; limits keep what copies, compares or
// writes values (all recursive) within any stack.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tailor {
namespace {

std::string at_byte(std::string_view text, std::size_t offset, std::string_view what) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = before.size() - (before.rfind('\n') + 1);  // npos + 1 is 0
  return fmt::format("line {}, column {}: {}", line, column + 1, what);
}

/// Builds a Json; with `builds` false it only checks. A handler of nlohmann's sax_parse.
template <typename Json>
class JsonBuilder {
 public:
  using number_integer_t = typename Json::number_integer_t;
  using number_unsigned_t = typename Json::number_unsigned_t;
  using number_float_t = typename Json::number_float_t;
  using string_t = typename Json::string_t;
  using binary_t = typename Json::binary_t;

  JsonBuilder(const JsonLimits& limits, bool builds) : limits_(limits), builds_(builds) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return refuse("binary data"); }  // no JSON text has it

  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }

  bool key(string_t& name) {
    if (!count()) return false;
    Level& level = levels_.back();
    if (!is_new(level, name)) {
      return refuse(fmt::format("the name \"{}\" is there twice in one object", short_text(name)));
    }
    level.name = std::move(name);
    return true;
  }

  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& why) {
    // nlohmann repeats what it has read, which may be everything.
    std::string_view reason = why.what();
    reason.remove_prefix(std::min(reason.size(), reason.rfind(": syntax error") + 2));
    reason = reason.substr(0, reason.find("; last read: "));
    position_ = position == 0 ? 0 : position - 1;
    has_position_ = true;
    reason_ = why.id == kOverflow ? "a number is too large for a double" : short_text(reason);
    return false;
  }

  bool has_position() const { return has_position_; }
  std::size_t position() const { return position_; }
  const std::string& reason() const { return reason_; }
  Json take() { return std::move(root_); }

 private:
  struct Level {
    Json value;
    std::string name;             // of the member that is being read
    std::set<std::string> names;  // of an object, where its value does not find them itself
  };

  bool is_new(Level& level, const std::string& name) const {
    if constexpr (std::is_same_v<Json, nlohmann::json>) {
      if (builds_) return level.value.find(name) == level.value.end();
    }
    return level.names.insert(name).second;
  }

  static constexpr int kOverflow = 406;  // the id of nlohmann's exception

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool count() {
    if (++values_ <= limits_.values) return true;
    return refuse(fmt::format("more than {} values: this is no file that Tailor reads",
                              with_thousands(static_cast<std::int64_t>(limits_.values))));
  }

  bool open(Json value) {
    if (!count()) return false;
    if (levels_.size() >= limits_.depth) {
      return refuse(fmt::format("lists and objects are nested more than {} deep", limits_.depth));
    }
    levels_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    put(std::move(value));
    return true;
  }

  template <typename T>
  bool add(T&& value) {
    if (!count()) return false;
    if (builds_) put(Json(std::forward<T>(value)));
    return true;
  }

  void put(Json value) {
    if (!builds_) return;
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (Level& level = levels_.back(); level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else {
      insert(level.value.template get_ref<typename Json::object_t&>(), std::move(level.name),
             std::move(value));
    }
  }

  // An ordered map looks at all its members before it takes one; that the name is new is known
  // here.
  static void insert(nlohmann::ordered_json::object_t& object, std::string name, Json value) {
    object.push_back({std::move(name), std::move(value)});
  }
  static void insert(nlohmann::json::object_t& object, std::string name, Json value) {
    object.emplace(std::move(name), std::move(value));
  }

  const JsonLimits& limits_;
  const bool builds_;
  std::vector<Level> levels_;
  Json root_;
  std::size_t values_ = 0;
  bool has_position_ = false;
  std::size_t position_ = 0;
  std::string reason_;
};

template <typename Json>
Result<Json> parse_strictly(std::string_view text, const JsonLimits& limits, bool builds) {
  // The reader takes a NUL for the end of its input.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    return error(Code::kInvalidArgument, at_byte(text, nul, "a NUL byte, which JSON never holds"));
  }
  try {
    JsonBuilder<Json> builder(limits, builds);
    const bool whole = Json::sax_parse(text.data(), text.data() + text.size(), &builder,
                                       nlohmann::detail::input_format_t::json, /*strict=*/true);
    if (whole) return builder.take();
    return error(Code::kInvalidArgument, builder.has_position()
                                             ? at_byte(text, builder.position(), builder.reason())
                                             : builder.reason());
  } catch (const std::bad_alloc&) {
    return error(Code::kResourceExhausted,
                 fmt::format("{} bytes of JSON do not fit into memory", text.size()));
  }
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const JsonLimits& limits) {
  return parse_strictly<nlohmann::json>(text, limits, true);
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, const JsonLimits& limits) {
  return parse_strictly<nlohmann::ordered_json>(text, limits, true);
}

Status check_json(std::string_view text, const JsonLimits& limits) {
  return status_of(parse_strictly<nlohmann::json>(text, limits, false));
}

}  // namespace tailor
