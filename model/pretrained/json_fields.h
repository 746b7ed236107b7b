// One JSON object of a foreign file whose fields are taken one by one, so that what nobody took can
// be named. The first mistake is kept, as a Status that names file and field; answers after it are
// fallbacks. Null is as good as absent, but for `is_null`.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tailor::pretrained {

/// See the top of this file. The JSON must outlive it.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix)
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  bool has(std::string_view name) const {
    const auto found = object_.find(name);
    return found != object_.end() && !found->is_null();
  }
  bool is_null(std::string_view name) const {
    const auto found = object_.find(name);
    return found != object_.end() && found->is_null();
  }
  const nlohmann::json* take(std::string_view name) {
    taken_.emplace(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  /// Absent and no fallback: an error. Anything outside [low, high] too.
  std::int64_t integer(std::string_view name, std::int64_t low, std::int64_t high,
                       std::optional<std::int64_t> fallback = {}) {
    const nlohmann::json* value = take(name);
    if (value == nullptr) {
      if (!fallback) missing(name);
      return fallback.value_or(low);
    }
    const bool good = value->is_number_integer() &&
                      (!value->is_number_unsigned() ||
                       value->get<std::uint64_t>() <= static_cast<std::uint64_t>(high)) &&
                      value->get<std::int64_t>() >= low && value->get<std::int64_t>() <= high;
    if (good) return value->get<std::int64_t>();
    wrong(name, *value, fmt::format("integers from {} to {}", low, high));
    return low;
  }
  double number(std::string_view name, double low, double high,
                std::optional<double> fallback = {}) {
    const nlohmann::json* value = take(name);
    if (value == nullptr) {
      if (!fallback) missing(name);
      return fallback.value_or(low);
    }
    if (value->is_number()) {
      const auto got = value->get<double>();
      if (got >= low && got <= high) return got;
    }
    wrong(name, *value, fmt::format("numbers from {} to {}", low, high));
    return low;
  }
  bool boolean(std::string_view name, bool fallback) {
    const nlohmann::json* value = take(name);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    wrong(name, *value, "true or false");
    return fallback;
  }
  std::string text(std::string_view name, std::string_view fallback) {
    const nlohmann::json* value = take(name);
    if (value == nullptr) return std::string(fallback);
    if (value->is_string()) return value->get<std::string>();
    wrong(name, *value, "text");
    return std::string(fallback);
  }
  /// The object `name` as JsonFields, or nullopt when absent.
  std::optional<JsonFields> object(std::string_view name) {
    const nlohmann::json* value = take(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_object()) return JsonFields(*value, file_, fmt::format("{}{}.", prefix_, name));
    wrong(name, *value, "an object");
    return std::nullopt;
  }

  void fail(Code code, std::string_view name, std::string_view what) {
    if (status_.is_ok())
      status_ = Status(code, fmt::format("{}: `{}{}` {}", file_, prefix_, name, what));
  }
  void adopt(const Status& status) {
    if (status_.is_ok()) status_ = status;
  }
  const Status& status() const { return status_; }
  /// The first mistake, or the first field that was not taken.
  Status finish(std::span<const std::string_view> harmless) {
    for (const auto& [name, value] : object_.items()) {
      const bool known = taken_.contains(name) || value.is_null() ||
                         std::find(harmless.begin(), harmless.end(), name) != harmless.end();
      if (!known) {
        fail(Code::kUnimplemented, name,
             "is not a field that Tailor knows; what it does to the network cannot be told");
      }
    }
    return status_;
  }

 private:
  void missing(std::string_view name) { fail(Code::kInvalidArgument, name, "is missing"); }
  void wrong(std::string_view name, const nlohmann::json& value, std::string_view allowed) {
    std::string shown = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
    fail(Code::kInvalidArgument, name, fmt::format("is {}; allowed: {}", shown, allowed));
  }

  const nlohmann::json& object_;
  std::string file_;
  std::string prefix_;
  std::set<std::string, std::less<>> taken_;
  Status status_;
};

}  // namespace tailor::pretrained
