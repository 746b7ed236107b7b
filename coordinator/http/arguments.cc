#include "coordinator/http/arguments.h"

#include <fmt/format.h>

#include <charconv>

namespace tailor::http {

std::string_view text_of(const Request& request, std::string_view key) {
  const auto found = request.query.find(std::string(key));
  return found == request.query.end() ? std::string_view() : std::string_view(found->second);
}

Result<std::uint64_t> number_of(const Request& request, std::string_view key,
                                std::uint64_t fallback, std::uint64_t most) {
  const std::string_view text = text_of(request, key);
  if (text.empty()) return fallback;
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value > most) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{} must be a whole number from 0 to {}, not \"{}\"", key, most, text));
  }
  return value;
}

Result<TrialId> trial_of(std::string_view text) {
  const auto id = TrialId::parse(text);
  if (!id.has_value()) {
    return error(Code::kInvalidArgument, fmt::format("\"{}\" is no trial id", text));
  }
  return *id;
}

}  // namespace tailor::http
