// TOML with positions: every wrong key or value is answered with file, line,
// column and what is allowed.
//
//   TAILOR_ASSIGN_OR_RETURN(ConfigDocument doc, ConfigDocument::parse(text, "sweep.toml"));
//   ConfigTable root = doc.root();
//   std::string name = root.string("name").value_or("x");  // reads remember which keys were known
//   TAILOR_RETURN_IF_ERROR(root.finish());                 // an unknown key is an error, with the
//                                                          // nearest name
//
// Reading is in two parts so that code stays flat: getters return std::optional and note the first
// error in the document; `finish()` (once a table) and `ConfigDocument::status()` report it.
// One parser for the whole product (toml++, in config.cc). Threads: one document, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor {

/// Where something stands in a file; lines and columns count from 1, 0 means "unknown".
struct ConfigPosition {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

class ConfigTable;

/// One value of any kind, with its position. Views into its ConfigDocument, which must outlive it.
class ConfigValue {
 public:
  enum class Kind { kString, kInteger, kFloat, kBoolean, kArray, kTable, kOther };

  Kind kind() const;
  ConfigPosition position() const;
  /// Dotted path, "space.ffn.k".
  const std::string& path() const { return path_; }

  // Typed reads: nullopt and a noted error ("sweep.toml:3:5: `layers` must be an integer, not a
  // string") when the kind is another. An integer is accepted where a float is wanted.
  std::optional<std::string> as_string() const;
  std::optional<std::int64_t> as_integer() const;
  std::optional<double> as_float() const;
  std::optional<bool> as_boolean() const;
  std::vector<ConfigValue> as_array() const;  ///< empty and noted when it is no array
  std::optional<ConfigTable> as_table() const;

  /// Notes `message` as the document's error, at this value's position (the first
  /// noted error wins).
  void fail(std::string_view message) const;

 private:
  friend class ConfigTable;
  friend class ConfigDocument;
  struct Impl;
  ConfigValue(const void* node, void* document, std::string path)
      : node_(node), document_(document), path_(std::move(path)) {}
  const void* node_;  // toml::node, owned by the document
  void* document_;    // ConfigDocument::Impl
  std::string path_;
};

/// One table. Remembers which keys were asked for, so that `finish` can name the unknown ones.
class ConfigTable {
 public:
  bool has(std::string_view key);
  /// The value under `key`, whatever its kind; nullopt when absent.
  std::optional<ConfigValue> value(std::string_view key);

  std::optional<std::string> string(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key);
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<ConfigTable> table(std::string_view key);
  std::vector<ConfigValue> array(std::string_view key);

  // Ranged forms: a value outside [low, high] is noted with what is allowed.
  std::optional<std::int64_t> integer_in(std::string_view key, std::int64_t low, std::int64_t high);
  std::optional<double> number_in(std::string_view key, double low, double high);
  /// One of `allowed`, else noted with the nearest name and the list.
  std::optional<std::string> one_of(std::string_view key,
                                    const std::vector<std::string_view>& allowed);
  /// A value in text or number form run through `parse` ("10 min", "0.5M tokens"), errors noted
  /// with position.
  template <typename T>
  std::optional<T> parsed(std::string_view key, Result<T> (*parse)(std::string_view)) {
    auto found = value(key);
    if (!found) return std::nullopt;
    auto result = parse(text_of(*found));
    if (!result) {
      found->fail(result.error().message());
      return std::nullopt;
    }
    return *result;
  }

  /// Every key in file order, all marked as known (for free-form tables such as [space]).
  std::vector<std::pair<std::string, ConfigValue>> items();

  ConfigPosition position() const;
  const std::string& path() const { return path_; }
  void fail(std::string_view message) const;

  /// Notes an error when a key was never asked for. Returns the document's status.
  Status finish();

 private:
  friend class ConfigValue;
  friend class ConfigDocument;
  ConfigTable(const void* node, void* document, std::string path);
  static std::string text_of(const ConfigValue& value);
  const void* node_;
  void* document_;
  std::string path_;
  struct Known;
  std::shared_ptr<Known> known_;
};

/// A parsed file. Owns everything that tables and values point into.
class ConfigDocument {
 public:
  /// `file` is only used in messages. Errors: kInvalidArgument with position for bad TOML, and for
  /// TOML beyond base/toml_limits.h (bytes, depth, number of keys and values).
  static Result<ConfigDocument> parse(std::string_view text, std::string file);
  /// Reads and parses. Errors: as read_file and parse.
  static Result<ConfigDocument> load(const std::string& path);

  ConfigDocument(ConfigDocument&&) noexcept;
  ConfigDocument& operator=(ConfigDocument&&) noexcept;
  ~ConfigDocument();

  ConfigTable root() const;
  /// The first noted error, or ok.
  Status status() const;
  const std::string& file() const;

 private:
  friend class ConfigValue;
  friend class ConfigTable;
  struct Impl;
  explicit ConfigDocument(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor
