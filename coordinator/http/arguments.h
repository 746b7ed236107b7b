// What a request asks with, read and checked (private to coordinator/http).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "coordinator/http/json_rows.h"
#include "coordinator/http/server.h"

namespace tailor::http {

/// One request to one route. The views point into the request.
struct Arguments {
  const Request& request;
  std::vector<std::string_view> path;  ///< what stands for the {...} of the route's pattern
};

/// The value of a query parameter; "" when it is not there.
std::string_view text_of(const Request& request, std::string_view key);
/// A whole number from 0 to `most`; `fallback` when the parameter is not there.
Result<std::uint64_t> number_of(const Request& request, std::string_view key,
                                std::uint64_t fallback, std::uint64_t most);
/// The parameter "limit", from 1 to `most`: a page of none would never get anybody further.
Result<std::uint64_t> limit_of(const Request& request, std::uint64_t fallback, std::uint64_t most);
/// "t41" or "41".
Result<TrialId> trial_of(std::string_view text);

}  // namespace tailor::http
