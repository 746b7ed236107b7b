#include "model/eval/records.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/eval/members.h"

namespace tailor::eval {
namespace {

using nlohmann::json;

/// The list `key`, of `count` entries.
Result<const json*> record_list(const json& record, const char* key, std::size_t count) {
  TAILOR_ASSIGN_OR_RETURN(const json* list, member(record, key));
  if (!list->is_array() || list->size() != count) {
    return error(Code::kInvalidArgument,
                 fmt::format("\"{}\" is not a list of {} entries, as many as \"loglikelihoods\"",
                             key, count));
  }
  return list;
}

Result<ItemResult> parse_record(const json& record) {
  ItemResult item;
  TAILOR_ASSIGN_OR_RETURN(item.task, text_member(record, "task"));
  TAILOR_ASSIGN_OR_RETURN(item.id, text_member(record, "id"));
  TAILOR_ASSIGN_OR_RETURN(item.digest, text_member(record, "digest"));
  TAILOR_ASSIGN_OR_RETURN(item.context_tokens, count_member(record, "context_tokens"));
  TAILOR_ASSIGN_OR_RETURN(item.cut_tokens, count_member(record, "cut_tokens"));
  TAILOR_ASSIGN_OR_RETURN(const json* values, member(record, "loglikelihoods"));
  if (!values->is_array() || values->size() < 2) {
    return error(Code::kInvalidArgument, "\"loglikelihoods\" is not a list of two or more numbers");
  }
  const std::size_t count = values->size();
  TAILOR_ASSIGN_OR_RETURN(const json* greedy, record_list(record, "is_greedy", count));
  for (std::size_t i = 0; i < count; ++i) {
    if (!(*values)[i].is_number() || !(*greedy)[i].is_boolean()) {
      return error(Code::kInvalidArgument,
                   "\"loglikelihoods\" must hold numbers and \"is_greedy\" true or false");
    }
    item.choices.emplace_back().loglikelihood = (*values)[i].get<double>();
    item.choices.back().is_greedy = (*greedy)[i].get<bool>();
  }
  using Length = std::pair<const char*, std::size_t ScoredChoice::*>;
  for (const auto& [key, length] :
       {Length("tokens", &ScoredChoice::tokens), Length("characters", &ScoredChoice::characters),
        Length("bytes", &ScoredChoice::bytes)}) {
    TAILOR_ASSIGN_OR_RETURN(const json* lengths, record_list(record, key, count));
    for (std::size_t i = 0; i < count; ++i) {
      if (!(*lengths)[i].is_number_unsigned()) {
        return error(Code::kInvalidArgument, fmt::format("\"{}\" must hold counts", key));
      }
      item.choices[i].*length = (*lengths)[i].get<std::size_t>();
    }
  }
  TAILOR_ASSIGN_OR_RETURN(item.gold, index_member(record, "gold", count));
  return item;
}

}  // namespace

std::string record_line(const ItemResult& item) {
  nlohmann::ordered_json line = {{"task", item.task},
                                 {"id", item.id},
                                 {"digest", item.digest},
                                 {"gold", item.gold},
                                 {"context_tokens", item.context_tokens},
                                 {"cut_tokens", item.cut_tokens}};
  for (const ScoredChoice& choice : item.choices) {
    line["loglikelihoods"].push_back(choice.loglikelihood);
    line["is_greedy"].push_back(choice.is_greedy);
    line["tokens"].push_back(choice.tokens);
    line["characters"].push_back(choice.characters);
    line["bytes"].push_back(choice.bytes);
  }
  for (const Metric metric : kMetrics) line[metric_name(metric)] = is_right(item, metric) ? 1 : 0;
  return line.dump();
}

Result<std::vector<ItemResult>> read_records(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<ItemResult> items;
  std::set<std::pair<std::string, std::string>> seen;
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    const json record = parse_json(line).value_or(nullptr);
    if (!record.is_object()) {
      return error(Code::kInvalidArgument, fmt::format("{}: not a record (a JSON object)", place));
    }
    auto item = parse_record(record);
    if (!item) return error(item.error().with_context(place));
    if (!seen.emplace(item->task, item->id).second) {
      return error(Code::kInvalidArgument, fmt::format("{}: item \"{}\" of {} for the second time",
                                                       place, item->id, item->task));
    }
    items.push_back(*std::move(item));
  }
  if (items.empty()) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} holds no records; write one with evaluate --records", path));
  }
  return items;
}

}  // namespace tailor::eval
