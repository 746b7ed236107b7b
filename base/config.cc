#include "base/config.h"

#include <fmt/format.h>

#include <stdexcept>

namespace {

/// What toml++ checks of itself, and gets wrong for some texts ("[{"): an error as any other, no
/// abort.
struct TomlAssertion : std::logic_error {
  TomlAssertion() : std::logic_error("this is no TOML") {}
};
constexpr void toml_check(bool holds) {
  if (!holds) throw TomlAssertion();
}

}  // namespace

#undef NDEBUG  // with it toml++ takes its checks for promises to the optimiser
#define TOML_ASSERT(expr) toml_check(static_cast<bool>(expr))
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "base/toml_limits.h"

namespace tailor {

namespace {

/// An error at a place of `file`. Keys and values of others are as long as they please: what does
/// not fit into a message (or, over gRPC, into the trailing metadata) is cut.
Status bad_config(std::string_view file, ConfigPosition at, std::string_view message) {
  const std::string kept = short_text(message, 2000);
  return Status(Code::kInvalidArgument,
                at.line > 0 ? fmt::format("{}:{}:{}: {}", file, at.line, at.column, kept)
                            : fmt::format("{}: {}", file, kept));
}

}  // namespace

struct ConfigDocument::Impl {
  std::string file;
  toml::table root;
  Status status;

  void note(ConfigPosition at, std::string_view message) {
    if (status.is_ok()) status = bad_config(file, at, message);
  }
};

/// The keys that a table was asked for, in the order of asking.
struct ConfigTable::Known {
  std::vector<std::string> order;
  std::set<std::string, std::less<>> names;
};

namespace {

const toml::node& as_node(const void* node) { return *static_cast<const toml::node*>(node); }

ConfigPosition position_of(const toml::node& node) {
  const auto& begin = node.source().begin;
  return {begin.line, begin.column};
}

std::string_view kind_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

std::string join_path(const std::string& path, std::string_view key) {
  const std::string quoted =
      key.find('.') == std::string_view::npos ? std::string(key) : fmt::format("\"{}\"", key);
  return path.empty() ? quoted : path + "." + quoted;
}

}  // namespace

ConfigValue::Kind ConfigValue::kind() const {
  switch (as_node(node_).type()) {
    case toml::node_type::string:
      return Kind::kString;
    case toml::node_type::integer:
      return Kind::kInteger;
    case toml::node_type::floating_point:
      return Kind::kFloat;
    case toml::node_type::boolean:
      return Kind::kBoolean;
    case toml::node_type::array:
      return Kind::kArray;
    case toml::node_type::table:
      return Kind::kTable;
    default:
      return Kind::kOther;
  }
}

ConfigPosition ConfigValue::position() const { return position_of(as_node(node_)); }

void ConfigValue::fail(std::string_view message) const {
  static_cast<ConfigDocument::Impl*>(document_)->note(position(), message);
}

std::optional<std::string> ConfigValue::as_string() const {
  if (const auto* v = as_node(node_).as_string()) return v->get();
  fail(fmt::format("`{}` must be a string, not {}", path_, kind_name(as_node(node_))));
  return std::nullopt;
}

std::optional<std::int64_t> ConfigValue::as_integer() const {
  if (const auto* v = as_node(node_).as_integer()) return v->get();
  fail(fmt::format("`{}` must be an integer, not {}", path_, kind_name(as_node(node_))));
  return std::nullopt;
}

std::optional<double> ConfigValue::as_float() const {
  if (const auto* v = as_node(node_).as_floating_point()) return v->get();
  if (const auto* v = as_node(node_).as_integer()) return static_cast<double>(v->get());
  fail(fmt::format("`{}` must be a number, not {}", path_, kind_name(as_node(node_))));
  return std::nullopt;
}

std::optional<bool> ConfigValue::as_boolean() const {
  if (const auto* v = as_node(node_).as_boolean()) return v->get();
  fail(fmt::format("`{}` must be true or false, not {}", path_, kind_name(as_node(node_))));
  return std::nullopt;
}

std::vector<ConfigValue> ConfigValue::as_array() const {
  std::vector<ConfigValue> out;
  const auto* array = as_node(node_).as_array();
  if (array == nullptr) {
    fail(fmt::format("`{}` must be a list, not {}", path_, kind_name(as_node(node_))));
    return out;
  }
  for (std::size_t i = 0; i < array->size(); ++i) {
    out.push_back(ConfigValue(array->get(i), document_, fmt::format("{}[{}]", path_, i)));
  }
  return out;
}

std::optional<ConfigTable> ConfigValue::as_table() const {
  if (as_node(node_).is_table()) return ConfigTable(node_, document_, path_);
  fail(fmt::format("`{}` must be a table, not {}", path_, kind_name(as_node(node_))));
  return std::nullopt;
}

ConfigTable::ConfigTable(const void* node, void* document, std::string path)
    : node_(node), document_(document), path_(std::move(path)), known_(std::make_shared<Known>()) {}

bool ConfigTable::has(std::string_view key) { return value(key).has_value(); }

std::optional<ConfigValue> ConfigTable::value(std::string_view key) {
  if (known_->names.find(key) == known_->names.end()) {
    known_->names.emplace(key);
    known_->order.emplace_back(key);
  }
  const toml::node* node = as_node(node_).as_table()->get(key);
  if (node == nullptr) return std::nullopt;
  return ConfigValue(node, document_, join_path(path_, key));
}

std::optional<std::string> ConfigTable::string(std::string_view key) {
  auto found = value(key);
  return found ? found->as_string() : std::nullopt;
}
std::optional<std::int64_t> ConfigTable::integer(std::string_view key) {
  auto found = value(key);
  return found ? found->as_integer() : std::nullopt;
}
std::optional<double> ConfigTable::number(std::string_view key) {
  auto found = value(key);
  return found ? found->as_float() : std::nullopt;
}
std::optional<bool> ConfigTable::boolean(std::string_view key) {
  auto found = value(key);
  return found ? found->as_boolean() : std::nullopt;
}
std::optional<ConfigTable> ConfigTable::table(std::string_view key) {
  auto found = value(key);
  return found ? found->as_table() : std::nullopt;
}
std::vector<ConfigValue> ConfigTable::array(std::string_view key) {
  auto found = value(key);
  return found ? found->as_array() : std::vector<ConfigValue>();
}

std::optional<std::int64_t> ConfigTable::integer_in(std::string_view key, std::int64_t low,
                                                    std::int64_t high) {
  const auto result = integer(key);
  if (result && (*result < low || *result > high)) {
    value(key)->fail(
        fmt::format("`{}` is {}; allowed: {} to {}", join_path(path_, key), *result, low, high));
    return std::nullopt;
  }
  return result;
}

std::optional<double> ConfigTable::number_in(std::string_view key, double low, double high) {
  const auto result = number(key);
  if (result && !(*result >= low && *result <= high)) {
    value(key)->fail(
        fmt::format("`{}` is {}; allowed: {} to {}", join_path(path_, key), *result, low, high));
    return std::nullopt;
  }
  return result;
}

std::optional<std::string> ConfigTable::one_of(std::string_view key,
                                               const std::vector<std::string_view>& allowed) {
  auto result = string(key);
  if (!result || std::find(allowed.begin(), allowed.end(), *result) != allowed.end()) return result;
  const std::string near = nearest_name(*result, allowed);
  value(key)->fail(fmt::format("`{}` is \"{}\"{}; allowed: {}", join_path(path_, key), *result,
                               near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                               fmt::join(allowed, ", ")));
  return std::nullopt;
}

std::vector<std::pair<std::string, ConfigValue>> ConfigTable::items() {
  std::vector<std::pair<std::string, ConfigValue>> out;
  for (const auto& [key, node] : *as_node(node_).as_table()) {
    out.emplace_back(std::string(key.str()), *value(key.str()));
  }
  // toml++ sorts keys; people expect the order of the file.
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    const auto pa = a.second.position(), pb = b.second.position();
    return std::pair(pa.line, pa.column) < std::pair(pb.line, pb.column);
  });
  return out;
}

ConfigPosition ConfigTable::position() const { return position_of(as_node(node_)); }

void ConfigTable::fail(std::string_view message) const {
  static_cast<ConfigDocument::Impl*>(document_)->note(position(), message);
}

Status ConfigTable::finish() {
  auto* document = static_cast<ConfigDocument::Impl*>(document_);
  if (!document->status.is_ok()) return document->status;
  for (const auto& [key, node] : *as_node(node_).as_table()) {
    if (known_->names.find(key.str()) != known_->names.end()) continue;
    const std::vector<std::string_view> known(known_->order.begin(), known_->order.end());
    const auto& at = key.source().begin;
    const std::string near = nearest_name(key.str(), known);
    document->note({at.line, at.column},
                   fmt::format("unknown key `{}`{}; allowed here: {}", join_path(path_, key.str()),
                               near.empty() ? "" : fmt::format(" (did you mean `{}`?)", near),
                               fmt::join(known, ", ")));
    break;  // the first error wins
  }
  return document->status;
}

std::string ConfigTable::text_of(const ConfigValue& value) {
  const toml::node& node = as_node(value.node_);
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* v = node.as_integer()) return std::to_string(v->get());
  if (const auto* v = node.as_floating_point()) return fmt::format("{}", v->get());
  return std::string("(") + std::string(kind_name(node)) + ")";
}

ConfigDocument::ConfigDocument(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConfigDocument::ConfigDocument(ConfigDocument&&) noexcept = default;
ConfigDocument& ConfigDocument::operator=(ConfigDocument&&) noexcept = default;
ConfigDocument::~ConfigDocument() = default;

Result<ConfigDocument> ConfigDocument::parse(std::string_view text, std::string file) {
  auto impl = std::make_unique<Impl>();
  impl->file = std::move(file);
  if (const auto excess = find_toml_excess(text)) {
    return error(bad_config(
        impl->file,
        {static_cast<std::uint32_t>(excess->line), static_cast<std::uint32_t>(excess->column)},
        excess->what));
  }
  try {
    impl->root = toml::parse(text, impl->file);
  } catch (const toml::parse_error& failure) {
    const auto& at = failure.source().begin;
    return error(bad_config(impl->file, {at.line, at.column}, failure.description()));
  } catch (const TomlAssertion& failure) {
    return error(bad_config(impl->file, {}, failure.what()));
  }
  return ConfigDocument(std::move(impl));
}

Result<ConfigDocument> ConfigDocument::load(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, TomlLimits().bytes));
  return parse(text, path);
}

ConfigTable ConfigDocument::root() const {
  return ConfigTable(static_cast<const toml::node*>(&impl_->root), impl_.get(), "");
}
Status ConfigDocument::status() const { return impl_->status; }
const std::string& ConfigDocument::file() const { return impl_->file; }

}  // namespace tailor
