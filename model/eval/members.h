// Typed access to members of a JSON object from outside: every error names the member.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailor::eval {

// Errors of all: kInvalidArgument, `"KEY" is missing` or what it must be.

/// The member `key` of any type but null. REQUIRES: `object` is an object.
Result<const nlohmann::json*> member(const nlohmann::json& object, const char* key);
Result<std::string> text_member(const nlohmann::json& object, const char* key);
Result<std::vector<std::string>> texts_member(const nlohmann::json& object, const char* key);
/// A number that counts something: not negative, no fraction.
Result<std::size_t> count_member(const nlohmann::json& object, const char* key);
/// An index below `count`: an integer, or its decimal digits as a string (data sets have both).
Result<std::size_t> index_member(const nlohmann::json& object, const char* key, std::size_t count);

}  // namespace tailor::eval
