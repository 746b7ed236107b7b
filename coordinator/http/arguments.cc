#include "coordinator/http/arguments.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"

namespace tailor::http {

std::string_view text_of(const Request& request, std::string_view key) {
  const auto found = request.query.find(std::string(key));
  return found == request.query.end() ? std::string_view() : std::string_view(found->second);
}

namespace {

Result<std::uint64_t> number_between(const Request& request, std::string_view key,
                                     std::uint64_t fallback, std::uint64_t least,
                                     std::uint64_t most) {
  const std::string_view text = text_of(request, key);
  if (text.empty()) return fallback;
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} must be a whole number from {} to {}, not \"{}\"", key, least,
                             most, short_text(text)));
  }
  return value;
}

}  // namespace

Result<std::uint64_t> number_of(const Request& request, std::string_view key,
                                std::uint64_t fallback, std::uint64_t most) {
  return number_between(request, key, fallback, 0, most);
}

Result<std::uint64_t> limit_of(const Request& request, std::uint64_t fallback, std::uint64_t most) {
  return number_between(request, "limit", fallback, 1, most);
}

Result<TrialId> trial_of(std::string_view text) {
  const auto id = TrialId::parse(text);
  if (!id.has_value()) {
    return error(Code::kInvalidArgument, fmt::format("\"{}\" is no trial id", text));
  }
  return *id;
}

}  // namespace tailor::http
