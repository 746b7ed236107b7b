// Validation, names and the canonical JSON of Architecture.
#include "model/shape/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace tailor::shape {
namespace {

// Upper limits: with all of them reached, the total of count.cc is still below 2^63.
constexpr std::int64_t kModelWidthMax = 1 << 18;
constexpr std::int64_t kHeadsMax = 1 << 14;
constexpr std::int64_t kHeadDimMax = 1 << 14;
constexpr std::int64_t kVocabularyMax = 1 << 26;
constexpr std::int64_t kLayersMax = 1 << 12;
constexpr std::int64_t kStackMax = 1 << 10;
constexpr std::int64_t kHiddenMax = 1 << 20;

constexpr std::array<std::pair<Family, std::string_view>, 2> kFamilies = {
    {{Family::kLlama, "llama"}, {Family::kOlmo2, "olmo2"}}};
constexpr std::array<std::pair<FfnKind, std::string_view>, 2> kFfnKinds = {
    {{FfnKind::kSwiglu, "swiglu"}, {FfnKind::kHourglass, "hourglass"}}};
constexpr std::array<std::pair<FfnNorm, std::string_view>, 5> kFfnNorms = {
    {{FfnNorm::kPerSub, "per_sub"},
     {FfnNorm::kPerSubGainless, "per_sub_gainless"},
     {FfnNorm::kFirstOnly, "first_only"},
     {FfnNorm::kPerSubPost, "per_sub_post"},
     {FfnNorm::kNone, "none"}}};

template <typename Enum, std::size_t N>
std::string_view name_of(const std::array<std::pair<Enum, std::string_view>, N>& table,
                         Enum value) {
  for (const auto& [item, name] : table) {
    if (item == value) return name;
  }
  TAILOR_CHECK(false, "no name for enum value {}", static_cast<int>(value));
  return {};
}

template <typename Enum, std::size_t N>
Result<Enum> parse_name(const std::array<std::pair<Enum, std::string_view>, N>& table,
                        std::string_view what, std::string_view text) {
  std::vector<std::string_view> allowed;
  for (const auto& [item, name] : table) {
    if (name == text) return item;
    allowed.push_back(name);
  }
  const std::string near = nearest_name(text, allowed);
  return error(Code::kInvalidArgument,
               fmt::format("{} is \"{}\"{}; allowed: {}", what, text,
                           near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                           fmt::join(allowed, ", ")));
}

Status in_range(std::string_view field, std::int64_t value, std::int64_t high) {
  if (value >= 1 && value <= high) return Status::ok();
  return Status(Code::kInvalidArgument,
                fmt::format("`{}` is {}; allowed: 1 to {}", field, value, high));
}

Status positive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return Status::ok();
  return Status(Code::kInvalidArgument,
                fmt::format("`{}` is {}; allowed: finite numbers above 0", field, value));
}

using Json = nlohmann::json;

Status wrong_type(std::string_view key, std::string_view wanted) {
  return Status(Code::kInvalidArgument,
                fmt::format("architecture JSON: `{}` must be {}", key, wanted));
}

Status read_int(const Json& value, std::string_view key, std::int32_t& out) {
  if (!value.is_number_integer()) return wrong_type(key, "an integer");
  // Unsigned values beyond int64 would wrap in get<int64_t>().
  const bool too_large = value.is_number_unsigned() &&
                         value.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max();
  const auto wide =
      too_large ? std::numeric_limits<std::int64_t>::max() : value.get<std::int64_t>();
  if (wide < std::numeric_limits<std::int32_t>::min() ||
      wide > std::numeric_limits<std::int32_t>::max()) {
    return wrong_type(key, "an integer of 32 bits");
  }
  out = static_cast<std::int32_t>(wide);
  return Status::ok();
}

Status read_bool(const Json& value, std::string_view key, bool& out) {
  if (!value.is_boolean()) return wrong_type(key, "true or false");
  out = value.get<bool>();
  return Status::ok();
}

Status read_double(const Json& value, std::string_view key, double& out) {
  if (!value.is_number()) return wrong_type(key, "a number");
  out = value.get<double>();
  return Status::ok();
}

template <typename Enum>
Status read_enum(const Json& value, std::string_view key, Result<Enum> (*parse)(std::string_view),
                 Enum& out) {
  if (!value.is_string()) return wrong_type(key, "a string");
  TAILOR_ASSIGN_OR_RETURN(out, parse(value.get_ref<const std::string&>()));
  return Status::ok();
}

Status read_widths(const Json& value, std::vector<LayerWidths>& out) {
  if (!value.is_array()) return wrong_type("widths", "a list of lists of integers");
  for (const Json& layer : value) {
    if (!layer.is_array()) return wrong_type("widths", "a list of lists of integers");
    LayerWidths widths;
    for (const Json& item : layer) {
      TAILOR_RETURN_IF_ERROR(read_int(item, "widths", widths.emplace_back()));
    }
    out.push_back(std::move(widths));
  }
  return Status::ok();
}

Status read_key(const std::string& key, const Json& value, Architecture& out) {
  if (key == "family") return read_enum(value, key, parse_family, out.family);
  if (key == "d_model") return read_int(value, key, out.d_model);
  if (key == "heads") return read_int(value, key, out.heads);
  if (key == "kv_heads") return read_int(value, key, out.kv_heads);
  if (key == "head_dim") return read_int(value, key, out.head_dim);
  if (key == "vocab_size") return read_int(value, key, out.vocab_size);
  if (key == "tie_embeddings") return read_bool(value, key, out.tie_embeddings);
  if (key == "ffn_kind") return read_enum(value, key, parse_ffn_kind, out.ffn_kind);
  if (key == "ffn_norm") return read_enum(value, key, parse_ffn_norm, out.ffn_norm);
  if (key == "ffn_outer_residual") return read_bool(value, key, out.ffn_outer_residual);
  if (key == "widths") return read_widths(value, out.widths);
  if (key == "rope_theta") return read_double(value, key, out.rope_theta);
  if (key == "norm_scaling") return read_bool(value, key, out.norm_scaling);
  if (key == "residual_scaling") return read_bool(value, key, out.residual_scaling);
  return read_double(value, key, out.norm_eps);
}

constexpr std::array<std::string_view, 15> kKeys = {
    "family",     "d_model",        "heads",    "kv_heads",     "head_dim",
    "vocab_size", "tie_embeddings", "ffn_kind", "ffn_norm",     "ffn_outer_residual",
    "widths",     "rope_theta",     "norm_eps", "norm_scaling", "residual_scaling"};
constexpr std::size_t kRequiredKeys = 13;  // the others are written only when they are on

}  // namespace

Architecture defaults_of(Family family) {
  Architecture out;
  out.family = family;
  if (family == Family::kOlmo2) {
    out.ffn_norm = FfnNorm::kPerSubPost;
    out.rope_theta = 500'000.0;
    out.norm_eps = 1e-6;
  }
  return out;
}

Status validate(const Architecture& a) {
  TAILOR_RETURN_IF_ERROR(in_range("d_model", a.d_model, kModelWidthMax));
  TAILOR_RETURN_IF_ERROR(in_range("heads", a.heads, kHeadsMax));
  TAILOR_RETURN_IF_ERROR(in_range("kv_heads", a.kv_heads, kHeadsMax));
  TAILOR_RETURN_IF_ERROR(in_range("head_dim", a.head_dim, kHeadDimMax));
  TAILOR_RETURN_IF_ERROR(in_range("vocab_size", a.vocab_size, kVocabularyMax));
  TAILOR_RETURN_IF_ERROR(
      in_range("layers", static_cast<std::int64_t>(a.widths.size()), kLayersMax));
  TAILOR_RETURN_IF_ERROR(positive("rope_theta", a.rope_theta));
  TAILOR_RETURN_IF_ERROR(positive("norm_eps", a.norm_eps));
  if (a.heads % a.kv_heads != 0) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("`kv_heads` is {}; allowed: divisors of `heads` = {}", a.kv_heads, a.heads));
  }
  if (a.head_dim % 2 != 0) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("`head_dim` is {}; allowed: even numbers (RoPE turns pairs)", a.head_dim));
  }
  for (std::size_t layer = 0; layer < a.widths.size(); ++layer) {
    const LayerWidths& widths = a.widths[layer];
    if (widths.empty() || static_cast<std::int64_t>(widths.size()) > kStackMax) {
      return in_range(fmt::format("sub-MLPs of layer {}", layer),
                      static_cast<std::int64_t>(widths.size()), kStackMax);
    }
    if (a.ffn_kind == FfnKind::kSwiglu && widths.size() != 1) {
      return Status(Code::kInvalidArgument,
                    fmt::format("layer {} has {} sub-MLPs; allowed: 1 for ffn kind \"swiglu\" (use "
                                "\"hourglass\" for a stack)",
                                layer, widths.size()));
    }
    for (std::size_t k = 0; k < widths.size(); ++k) {
      if (widths[k] >= 1 && widths[k] <= kHiddenMax) continue;  // the text is only made when needed
      return in_range(fmt::format("d_h of layer {}, sub-MLP {}", layer, k), widths[k], kHiddenMax);
    }
  }
  return Status::ok();
}

std::string canonical_json(const Architecture& a) {
  std::string widths;
  for (const LayerWidths& layer : a.widths) {
    widths += fmt::format("{}[{}]", widths.empty() ? "" : ",", fmt::join(layer, ","));
  }
  return fmt::format(
      R"({{"family":"{}","d_model":{},"heads":{},"kv_heads":{},"head_dim":{},"vocab_size":{},)"
      R"("tie_embeddings":{},"ffn_kind":"{}","ffn_norm":"{}","ffn_outer_residual":{},)"
      R"("widths":[{}],"rope_theta":{},"norm_eps":{}{}{}}})",
      family_name(a.family), a.d_model, a.heads, a.kv_heads, a.head_dim, a.vocab_size,
      a.tie_embeddings, ffn_kind_name(a.ffn_kind), ffn_norm_name(a.ffn_norm), a.ffn_outer_residual,
      widths, a.rope_theta, a.norm_eps, a.norm_scaling ? R"(,"norm_scaling":true)" : "",
      a.residual_scaling ? R"(,"residual_scaling":true)" : "");
}

Result<Architecture> architecture_from_json(std::string_view json) {
  auto parsed = parse_json(json);
  if (!parsed)
    return error(parsed.error().with_context("architecture JSON: this is not a JSON object"));
  const Json root = *std::move(parsed);
  if (!root.is_object()) {
    return error(Code::kInvalidArgument, "architecture JSON: this is not a JSON object");
  }
  Architecture out;
  for (const auto& [key, value] : root.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      const std::string near = nearest_name(key, kKeys);
      return error(Code::kInvalidArgument,
                   fmt::format("architecture JSON: unknown key `{}`{}; allowed: {}", key,
                               near.empty() ? "" : fmt::format(" (did you mean `{}`?)", near),
                               fmt::join(kKeys, ", ")));
    }
    TAILOR_RETURN_IF_ERROR(read_key(key, value, out));
  }
  for (const std::string_view key : std::span(kKeys).first(kRequiredKeys)) {
    if (!root.contains(key)) {
      return error(Code::kInvalidArgument, fmt::format("architecture JSON: `{}` is missing", key));
    }
  }
  TAILOR_RETURN_IF_ERROR(validate(out).with_context("architecture JSON"));
  return out;
}

std::string_view family_name(Family family) { return name_of(kFamilies, family); }
std::string_view ffn_kind_name(FfnKind kind) { return name_of(kFfnKinds, kind); }
std::string_view ffn_norm_name(FfnNorm norm) { return name_of(kFfnNorms, norm); }
Result<Family> parse_family(std::string_view name) { return parse_name(kFamilies, "family", name); }
Result<FfnKind> parse_ffn_kind(std::string_view name) {
  return parse_name(kFfnKinds, "ffn kind", name);
}
Result<FfnNorm> parse_ffn_norm(std::string_view name) {
  return parse_name(kFfnNorms, "ffn norm", name);
}

std::vector<LayerWidths> uniform_widths(std::int32_t layers, std::int32_t k, std::int32_t d_h) {
  TAILOR_CHECK(layers >= 0 && k >= 0, "layers={} k={}", layers, k);
  return std::vector<LayerWidths>(static_cast<std::size_t>(layers),
                                  LayerWidths(static_cast<std::size_t>(k), d_h));
}

}  // namespace tailor::shape
