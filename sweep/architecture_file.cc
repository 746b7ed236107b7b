#include "sweep/architecture_file.h"

#include <fmt/format.h>

#include <cmath>

#include "model/shape/presets.h"
#include "sweep/blueprint.h"
#include "sweep/table_reader.h"
#include "sweep/widths.h"

namespace tailor::sweep {
namespace {

/// Bounds the work of solving a size, which makes a frame for every size it tries.
constexpr std::int64_t kSubMlpsMax = 65'536;

const AxisValue* find(const Point& keys, std::string_view path) {
  const auto found = keys.find(std::string(path));
  return found == keys.end() ? nullptr : &found->second;
}

std::string text_of(const Point& keys, std::string_view path, std::string_view fallback) {
  const AxisValue* value = find(keys, path);
  return value == nullptr ? std::string(fallback) : std::get<std::string>(*value);
}

bool boolean_of(const Point& keys, std::string_view path, bool fallback) {
  const AxisValue* value = find(keys, path);
  return value == nullptr ? fallback : std::get<bool>(*value);
}

Result<std::int32_t> required(const Point& keys, std::string_view path) {
  const auto value = integer_of(keys, path);
  if (value) return *value;
  return error(Code::kInvalidArgument, fmt::format("`{}` is missing", path));
}

/// heads, kv_heads and head_dim, with their defaults.
Status set_heads(const Point& keys, shape::Architecture& out) {
  out.head_dim = integer_of(keys, "head_dim").value_or(64);
  const auto heads = integer_of(keys, "heads");
  if (!heads && out.d_model % out.head_dim != 0) {
    return {Code::kInvalidArgument,
            fmt::format("`d_model` is {}; allowed: multiples of `head_dim` = {}, or give `heads`",
                        out.d_model, out.head_dim)};
  }
  out.heads = heads.value_or(out.d_model / out.head_dim);
  out.kv_heads = integer_of(keys, "kv_heads").value_or(out.heads);
  return Status::ok();
}

}  // namespace

std::optional<std::int32_t> integer_of(const Point& keys, std::string_view path) {
  const AxisValue* value = find(keys, path);
  if (value == nullptr) return std::nullopt;
  return static_cast<std::int32_t>(std::get<std::int64_t>(*value));
}

std::optional<double> number_of(const Point& keys, std::string_view path) {
  const AxisValue* value = find(keys, path);
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return static_cast<double>(*integer);
  return std::get<double>(*value);
}

Result<Blueprint> make_blueprint(const Point& keys) {
  Blueprint out;
  shape::Architecture& a = out.frame;
  TAILOR_ASSIGN_OR_RETURN(const shape::Family family,
                          shape::parse_family(text_of(keys, "family", "llama")));
  a = shape::defaults_of(family);
  TAILOR_ASSIGN_OR_RETURN(a.d_model, required(keys, "d_model"));
  std::vector<shape::LayerWidths> widths;
  if (const AxisValue* text = find(keys, "widths")) {
    TAILOR_ASSIGN_OR_RETURN(widths, widths_from_text(std::get<std::string>(*text)));
  }
  out.fixed_widths = !widths.empty();
  auto layers = static_cast<std::int32_t>(widths.size());
  if (!out.fixed_widths) {
    TAILOR_ASSIGN_OR_RETURN(layers, required(keys, "layers"));
  }
  TAILOR_RETURN_IF_ERROR(set_heads(keys, a));
  a.vocab_size = integer_of(keys, "vocab_size").value_or(shape::kDefaultVocabulary);
  a.tie_embeddings = boolean_of(keys, "tie_embeddings", true);
  a.rope_theta = number_of(keys, "rope_theta").value_or(a.rope_theta);
  a.norm_eps = number_of(keys, "norm_eps").value_or(a.norm_eps);
  TAILOR_ASSIGN_OR_RETURN(a.ffn_kind, shape::parse_ffn_kind(text_of(keys, "ffn.kind", "swiglu")));
  TAILOR_ASSIGN_OR_RETURN(a.ffn_norm, shape::parse_ffn_norm(text_of(
                                          keys, "ffn.norm", shape::ffn_norm_name(a.ffn_norm))));
  a.ffn_outer_residual = boolean_of(keys, "ffn.outer_residual", false);
  a.norm_scaling = boolean_of(keys, "norm_scaling", false);
  a.residual_scaling = boolean_of(keys, "residual_scaling", false);
  if (out.fixed_widths) {
    out.k = static_cast<std::int32_t>(widths.front().size());
  } else if (a.ffn_kind == shape::FfnKind::kHourglass) {
    TAILOR_ASSIGN_OR_RETURN(out.k, required(keys, "ffn.k"));
  } else {
    out.k = integer_of(keys, "ffn.k").value_or(1);
    if (out.k != 1) {
      return error(
          Code::kInvalidArgument,
          fmt::format(
              "`ffn.k` is {}; allowed: 1 with ffn.kind = \"swiglu\" (use \"hourglass\" for a "
              "stack)",
              out.k));
    }
  }
  if (std::int64_t{layers} * out.k > kSubMlpsMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("`layers` x `ffn.k` is {} x {}; allowed: up to {} sub-MLPs", layers,
                             out.k, kSubMlpsMax));
  }
  const std::string kind = text_of(keys, "schedule.kind", "uniform");
  // Until it is measured, a schedule that is cut from geometry has the sizes of a uniform one.
  TAILOR_ASSIGN_OR_RETURN(out.schedule.kind,
                          shape::parse_schedule_kind(kind == "geometry" ? "uniform" : kind));
  TAILOR_ASSIGN_OR_RETURN(out.schedule.convention, shape::parse_schedule_convention(text_of(
                                                       keys, "schedule.convention", "endpoint")));
  out.schedule.high = number_of(keys, "schedule.high").value_or(out.schedule.high);
  out.schedule.low = number_of(keys, "schedule.low").value_or(out.schedule.low);
  out.schedule.steepness = number_of(keys, "schedule.steepness").value_or(out.schedule.steepness);
  out.schedule.turn = number_of(keys, "schedule.turn").value_or(out.schedule.turn);
  out.schedule.waist = number_of(keys, "schedule.waist").value_or(out.schedule.waist);
  out.d_h = integer_of(keys, "ffn.d_h").value_or(0);
  out.ratio = number_of(keys, "d_h_ratio").value_or(0);
  a.widths = out.fixed_widths ? std::move(widths) : shape::uniform_widths(layers, out.k, 1);
  TAILOR_RETURN_IF_ERROR(shape::validate(a));
  return out;
}

Result<shape::Architecture> build_architecture(const Point& keys) {
  TAILOR_ASSIGN_OR_RETURN(Blueprint blueprint, make_blueprint(keys));
  if (blueprint.fixed_widths) return std::move(blueprint.frame);
  const double wanted =
      blueprint.d_h > 0 ? blueprint.d_h : std::round(blueprint.ratio * blueprint.frame.d_model);
  if (wanted < 1) {
    return error(Code::kInvalidArgument, "`ffn.d_h` (or `d_h_ratio`) is missing");
  }
  shape::Architecture out = std::move(blueprint.frame);
  const std::int64_t total = std::int64_t{out.layers()} * blueprint.k * std::llround(wanted);
  TAILOR_ASSIGN_OR_RETURN(
      out.widths, shape::scheduled_widths(blueprint.schedule, out.layers(), blueprint.k, total, 1));
  TAILOR_RETURN_IF_ERROR(shape::validate(out));
  return out;
}

Result<shape::Architecture> parse_architecture_toml(std::string_view text,
                                                    const std::string& file) {
  TAILOR_ASSIGN_OR_RETURN(const ConfigDocument document, ConfigDocument::parse(text, file));
  ConfigTable root = document.root();
  ConfigTable table = root;
  if (auto nested = root.table("architecture")) {
    table = *nested;
    TAILOR_RETURN_IF_ERROR(root.finish());
  }
  Point keys;
  const auto widths_value = table.value("widths");
  read_architecture(table, &keys);
  keys.erase("widths");
  TAILOR_RETURN_IF_ERROR(table.finish());
  TAILOR_RETURN_IF_ERROR(document.status());
  const auto refuse = [&](const Status& status) {
    table.fail(status.message());
    return error(document.status());
  };
  if (!widths_value) {
    auto built = build_architecture(keys);
    return built ? std::move(built) : refuse(built.error());
  }
  for (const char* key : {"layers", "ffn.k", "ffn.d_h", "d_h_ratio", "schedule.kind"}) {
    if (keys.contains(key)) {
      widths_value->fail(
          fmt::format("`widths` is complete and `{}` is given too; allowed: one of them", key));
      return error(document.status());
    }
  }
  auto widths = read_widths(*widths_value);
  TAILOR_RETURN_IF_ERROR(document.status());
  keys.emplace("layers", static_cast<std::int64_t>(std::min<std::size_t>(widths.size(), 4'096)));
  keys.emplace("ffn.k", std::int64_t{1});
  auto blueprint = make_blueprint(keys);
  if (!blueprint) return refuse(blueprint.error());
  blueprint->frame.widths = std::move(widths);
  if (const Status status = shape::validate(blueprint->frame); !status.is_ok())
    return refuse(status);
  return std::move(blueprint->frame);
}

}  // namespace tailor::sweep
