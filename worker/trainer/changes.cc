#include "worker/trainer/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "protocol/convert.h"

namespace tailor::trainer {
namespace {

using nlohmann::json;

// As trial_identity() has it: what is not named here decides the weights.
constexpr std::string_view kNothing[] = {"trial",
                                         "attempt",
                                         "token",
                                         "sweep_name",
                                         "candidate_name",
                                         "device",
                                         "threads",
                                         "resume_from",
                                         "train.micro_batch_tokens",
                                         "train.log_every_steps",
                                         "train.evaluate_every_tokens",
                                         "train.checkpoint_every_ms",
                                         "train.recompute",
                                         "train.keep_last",
                                         "train.keep_best",
                                         "train.nan_skip_limit"};
constexpr std::string_view kMeasures[] = {"data.train", "data.validation",
                                          "train.validation_tokens", "geometry"};

bool among(std::string_view field, std::span<const std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return field == name || (field.starts_with(name) && field[name.size()] == '.');
  });
}

Decides decides(std::string_view field) {
  if (among(field, kNothing)) return Decides::kNothing;
  return among(field, kMeasures) ? Decides::kMeasures : Decides::kResult;
}

std::string text_of(const json* value) {
  if (value == nullptr) return "not set";
  // 64-bit numbers are texts in protobuf's JSON.
  return value->is_string() ? value->get<std::string>() : value->dump();
}

void compare(const json& was, const json& is, const std::string& prefix,
             std::vector<SpecChange>* out) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : was.items()) keys.push_back(key);
  for (const auto& [key, value] : is.items()) {
    if (!was.contains(key)) keys.push_back(key);
  }
  for (const std::string& key : keys) {
    const json* old_value = was.contains(key) ? &was.at(key) : nullptr;
    const json* new_value = is.contains(key) ? &is.at(key) : nullptr;
    const bool both = old_value != nullptr && new_value != nullptr;
    if (both && *old_value == *new_value) continue;
    if (both && old_value->is_object() && new_value->is_object()) {
      compare(*old_value, *new_value, prefix + key + ".", out);
    } else {
      const std::string field = prefix + key;
      out->push_back({field, text_of(old_value), text_of(new_value), decides(field)});
    }
  }
}

}  // namespace

std::vector<SpecChange> changes_between(const protocol::TrialSpec& was,
                                        const protocol::TrialSpec& is) {
  std::vector<SpecChange> out;
  const auto old_spec = parse_json(protocol::to_json(was));
  const auto new_spec = parse_json(protocol::to_json(is));
  TAILOR_CHECK(old_spec && new_spec, "spec.json as Tailor writes it is JSON");
  compare(*old_spec, *new_spec, "", &out);
  return out;
}

std::string to_text(const std::vector<SpecChange>& changes) {
  std::string text;
  for (const SpecChange& change : changes) {
    text += fmt::format("{}{} was {}, is {}", text.empty() ? "" : "; ", change.field, change.was,
                        change.is);
  }
  return text;
}

}  // namespace tailor::trainer
