#include "model/eval/members.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

namespace tailor::eval {
namespace {

using nlohmann::json;

tl::unexpected<Status> bad_member(const char* key, std::string_view what) {
  return error(Code::kInvalidArgument, fmt::format("\"{}\" {}", key, what));
}

}  // namespace

Result<const json*> member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return bad_member(key, "is missing");
  return &*found;
}

Result<std::string> text_member(const json& object, const char* key) {
  TAILOR_ASSIGN_OR_RETURN(const json* value, member(object, key));
  if (!value->is_string()) return bad_member(key, "is not a string");
  return value->get<std::string>();
}

Result<std::vector<std::string>> texts_member(const json& object, const char* key) {
  TAILOR_ASSIGN_OR_RETURN(const json* value, member(object, key));
  if (!value->is_array()) return bad_member(key, "is not a list of strings");
  std::vector<std::string> texts;
  for (const json& text : *value) {
    if (!text.is_string()) return bad_member(key, "is not a list of strings");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

Result<std::size_t> count_member(const json& object, const char* key) {
  TAILOR_ASSIGN_OR_RETURN(const json* value, member(object, key));
  if (!value->is_number_unsigned()) return bad_member(key, "is not a count");
  return value->get<std::size_t>();
}

Result<std::size_t> index_member(const json& object, const char* key, std::size_t count) {
  TAILOR_ASSIGN_OR_RETURN(const json* value, member(object, key));
  std::size_t index = count;  // not a choice
  if (value->is_number_integer()) {
    index = value->get<std::size_t>();  // a negative one becomes too large
  } else if (value->is_string()) {
    const auto& digits = value->get_ref<const std::string&>();
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (failure != std::errc() || end != digits.data() + digits.size()) index = count;
  }
  if (index >= count) {
    return bad_member(key, fmt::format("is {}, and not the number of a choice from 0 to {} (test "
                                       "splits come without labels: use the split that has them)",
                                       value->dump(-1, ' ', true).substr(0, 80), count - 1));
  }
  return index;
}

}  // namespace tailor::eval
