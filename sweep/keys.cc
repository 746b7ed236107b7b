#include "sweep/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sweep/widths.h"

namespace tailor::sweep {
namespace {

constexpr double kTokensMax = 1e15;
constexpr std::int64_t kBatchTokensMax = 1'000'000'000;
constexpr double kTiny = 1e-12;

const std::vector<Key>& architecture_table() {
  // The upper limits are those of shape::validate.
  static const std::vector<Key> table = {
      {"family", KeyKind::kChoice, 0, 0, {"llama", "olmo2"}},
      {"d_model", KeyKind::kInteger, 1, 262'144},
      {"layers", KeyKind::kInteger, 1, 4'096},
      {"head_dim", KeyKind::kInteger, 2, 16'384},
      {"heads", KeyKind::kInteger, 1, 16'384},
      {"kv_heads", KeyKind::kInteger, 1, 16'384},
      {"vocab_size", KeyKind::kInteger, 1, 67'108'864},
      {"tie_embeddings", KeyKind::kBoolean},
      {"rope_theta", KeyKind::kNumber, 1, 1e12},
      {"norm_eps", KeyKind::kNumber, kTiny, 0.1},
      {"ffn.kind", KeyKind::kChoice, 0, 0, {"swiglu", "hourglass"}},
      {"ffn.k", KeyKind::kInteger, 1, 1'024},
      {"ffn.d_h", KeyKind::kInteger, 1, 1'048'576},
      {"ffn.norm",
       KeyKind::kChoice,
       0,
       0,
       {"per_sub", "per_sub_gainless", "first_only", "per_sub_post", "none"}},
      {"ffn.outer_residual", KeyKind::kBoolean},
      {"norm_scaling", KeyKind::kBoolean},
      {"residual_scaling", KeyKind::kBoolean},
      {"d_h_ratio", KeyKind::kNumber, 0.001, 1'000},
      {"widths", KeyKind::kWidths},
      {"schedule.kind",
       KeyKind::kChoice,
       0,
       0,
       {"uniform", "cosine", "linear", "sigmoid", "bowtie", "geometry"}},
      {"schedule.convention", KeyKind::kChoice, 0, 0, {"endpoint", "midpoint"}},
      {"schedule.high", KeyKind::kNumber, 0.001, 1'000},
      {"schedule.low", KeyKind::kNumber, 0.001, 1'000},
      {"schedule.steepness", KeyKind::kNumber, 0.001, 100},
      {"schedule.turn", KeyKind::kNumber, 0.001, 0.999},
      {"schedule.waist", KeyKind::kNumber, 0.001, 0.999},
      // Of kind geometry alone: sweep/schedule_request.cc.
      {"schedule.from", KeyKind::kText},
      {"schedule.seed", KeyKind::kInteger, 0, 9e15},
      {"schedule.iterate", KeyKind::kInteger, 0, 16},
      {"schedule.geometry", KeyKind::kChoice, 0, 0, {"raw", "spherical", "hyperbolic"}},
      {"schedule.statistic", KeyKind::kChoice, 0, 0, {"shift", "gromov", "topology"}},
      {"schedule.control",
       KeyKind::kChoice,
       0,
       0,
       {"none", "mirrored", "inverse", "reversed", "permuted"}},
      {"schedule.control_seed", KeyKind::kInteger, 0, 9e15},
      {"schedule.smoothing", KeyKind::kChoice, 0, 0, {"gaussian", "median", "none"}},
      {"schedule.sigma", KeyKind::kNumber, 0.01, 1'000},
      {"schedule.window", KeyKind::kInteger, 1, 999},
      {"schedule.exponent", KeyKind::kChoice, 0, 0, {"2/d", "s/d", "2s/d", "constant"}},
      {"schedule.smoothness", KeyKind::kNumber, 0.001, 1'000},
      {"schedule.dimension", KeyKind::kChoice, 0, 0, {"two_nn", "levina_bickel"}},
      {"schedule.floor", KeyKind::kNumber, 0, 1},
      {"schedule.cap", KeyKind::kNumber, 1, 1'000},
      {"schedule.width_unit", KeyKind::kChoice, 0, 0, {"absolute", "relative"}},
      {"schedule.quantum", KeyKind::kInteger, 1, 4'096},
      {"schedule.sub_mlps", KeyKind::kChoice, 0, 0, {"shared", "own"}},
  };
  return table;
}

const std::vector<Key>& train_table() {
  static const std::vector<Key> table = {
      {"train.tokens", KeyKind::kText},
      {"train.batch", KeyKind::kText},
      {"train.micro_batch", KeyKind::kText},
      {"train.precision", KeyKind::kChoice, 0, 0, {"f32", "bf16"}},
      {"train.init_std", KeyKind::kNumber, kTiny, 10},
      {"train.dn_init", KeyKind::kChoice, 0, 0, {"fixed", "fan_in"}},
      {"train.z_loss", KeyKind::kNumber, 0, 1},
      {"train.recompute", KeyKind::kBoolean},
      {"train.keep_last", KeyKind::kInteger, 1, 1'000},
      {"train.keep_best", KeyKind::kBoolean},
      {"train.nan_skip_limit", KeyKind::kInteger, 0, 1'000'000},
      {"train.log_every", KeyKind::kInteger, 1, 1e9},
      {"train.evaluate_every", KeyKind::kText},
      {"train.checkpoint_every", KeyKind::kText},
      {"train.validation_tokens", KeyKind::kText},
      {"train.optimizer.kind", KeyKind::kChoice, 0, 0, {"adamw"}},
      {"train.optimizer.lr", KeyKind::kNumber, kTiny, 100},
      {"train.optimizer.lr_mode", KeyKind::kChoice, 0, 0, {"fixed", "step_law", "mup"}},
      {"train.optimizer.mup_base_width", KeyKind::kInteger, 1, 262'144},
      {"train.optimizer.betas", KeyKind::kBetas},
      {"train.optimizer.beta1", KeyKind::kNumber, 0, 0.999999999},
      {"train.optimizer.beta2", KeyKind::kNumber, 0, 0.999999999},
      {"train.optimizer.eps", KeyKind::kNumber, 1e-30, 1},
      {"train.optimizer.weight_decay", KeyKind::kNumber, 0, 100},
      {"train.optimizer.clip", KeyKind::kNumber, 0, 1e9},
      {"train.schedule.kind", KeyKind::kChoice, 0, 0, {"cosine", "constant", "wsd"}},
      {"train.schedule.decay", KeyKind::kNumber, kTiny, 1},
      {"train.schedule.decay_shape", KeyKind::kChoice, 0, 0, {"linear", "1-sqrt"}},
      {"train.schedule.warmup", KeyKind::kText},
      {"train.schedule.final", KeyKind::kNumber, 0, 1},
  };
  return table;
}

const std::vector<Key>& budget_table() {
  static const std::vector<Key> table = {{"budget.parameters", KeyKind::kInteger, 1, 1e12}};
  return table;
}

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

/// `text` without a trailing word `word` and the blanks around it.
std::string_view without_word(std::string_view text, std::string_view word) {
  text = trim(text);
  if (text.ends_with(word)) return trim(text.substr(0, text.size() - word.size()));
  return text;
}

/// `value` in text form, integers included.
std::string text_of(const AxisValue& value) { return to_text(value); }

Result<std::int64_t> tokens_in(const AxisValue& value, std::int64_t low) {
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t tokens, parse_token_count(text_of(value)));
  if (tokens < low) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} tokens are too few; allowed: {} to 1e15", tokens, low));
  }
  return tokens;
}

Result<std::int64_t> batch_in(const AxisValue& value, std::int64_t sequence_length) {
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t tokens, tokens_in(value, 1));
  if (tokens > kBatchTokensMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} tokens are too many for one step; allowed: up to 1e9", tokens));
  }
  if (std::holds_alternative<std::int64_t>(value) && tokens % sequence_length != 0) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{} tokens are no whole number of sequences; allowed: multiples of "
                    "sequence_length = {}, or text such as \"{}k tokens\", which is rounded",
                    tokens, sequence_length, std::max<std::int64_t>(1, (tokens + 500) / 1000)));
  }
  const std::int64_t sequences =
      std::max<std::int64_t>(1, (tokens + sequence_length / 2) / sequence_length);
  return sequences * sequence_length;
}

Status set_tokens(const AxisValue& value, protocol::TrainSpec* train, double* per_parameter) {
  const std::string text = text_of(value);
  const std::string_view shorter = without_word(text, "per parameter");
  if (shorter.size() != trim(text).size()) {
    const auto ratio = parse_count(without_word(shorter, "tokens"));
    if (!ratio || *ratio <= 0 || *ratio > 1e6) {
      return invalid(
          fmt::format("\"{}\" is no budget; allowed: \"20 per parameter\" (above 0, up to 1e6), "
                      "\"2.2B\" or an integer",
                      text));
    }
    *per_parameter = *ratio;
    train->tokens = 0;
    return Status::ok();
  }
  TAILOR_ASSIGN_OR_RETURN(train->tokens, tokens_in(value, 1));
  *per_parameter = 0;
  return Status::ok();
}

Status set_warmup(const AxisValue& value, protocol::LrScheduleSpec* schedule) {
  const std::string text = text_of(value);
  const auto wrong = [&] {
    return invalid(fmt::format(
        "\"{}\" is no warm-up; allowed: \"1 %\" (0 up to below 100), \"200 steps\" or a "
        "whole number of steps",
        text));
  };
  const std::string_view percent = without_word(text, "%");
  if (percent.size() != trim(text).size()) {
    const auto share = parse_count(percent);
    if (!share || *share < 0 || *share >= 100) return wrong();
    schedule->warmup_fraction = *share / 100;
    schedule->warmup_steps = -1;
    return Status::ok();
  }
  const auto steps = parse_count(without_word(text, "steps"));
  if (!steps || *steps < 0 || *steps > 1e12 || *steps != std::floor(*steps)) return wrong();
  schedule->warmup_steps = static_cast<std::int64_t>(*steps);
  return Status::ok();
}

/// The largest divisor of `number` that is at most `limit`. REQUIRES: both >= 1.
std::int64_t largest_divisor(std::int64_t number, std::int64_t limit) {
  std::int64_t best = 1;
  for (std::int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    if (i <= limit) best = std::max(best, i);
    if (number / i <= limit) best = std::max(best, number / i);
  }
  return best;
}

double number_of(const AxisValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}

/// set_train on a copy.
Status set_field(std::string_view path, const AxisValue& value, std::int64_t sequence_length,
                 protocol::TrainSpec& t, double& per_parameter) {
  const std::string_view name = path.substr(std::string_view("train.").size());
  if (name == "tokens") return set_tokens(value, &t, &per_parameter);
  if (name == "batch") {
    TAILOR_ASSIGN_OR_RETURN(t.batch_tokens, batch_in(value, sequence_length));
  } else if (name == "micro_batch") {
    TAILOR_ASSIGN_OR_RETURN(t.micro_batch_tokens, tokens_in(value, 0));
  } else if (name == "precision") {
    t.precision = std::get<std::string>(value) == "bf16" ? protocol::Precision::kBf16
                                                         : protocol::Precision::kF32;
  } else if (name == "init_std") {
    t.init_std = number_of(value);
  } else if (name == "dn_init") {
    t.down_init = std::get<std::string>(value) == "fan_in" ? protocol::DownInit::kFanIn
                                                           : protocol::DownInit::kFixed;
  } else if (name == "z_loss") {
    t.z_loss = number_of(value);
  } else if (name == "recompute") {
    t.recompute = std::get<bool>(value);
  } else if (name == "keep_last") {
    t.keep_last = static_cast<std::int32_t>(std::get<std::int64_t>(value));
  } else if (name == "keep_best") {
    t.keep_best = std::get<bool>(value);
  } else if (name == "nan_skip_limit") {
    t.nan_skip_limit = static_cast<std::int32_t>(std::get<std::int64_t>(value));
  } else if (name == "log_every") {
    t.log_every_steps = std::get<std::int64_t>(value);
  } else if (name == "evaluate_every") {
    TAILOR_ASSIGN_OR_RETURN(t.evaluate_every_tokens, tokens_in(value, 0));
  } else if (name == "validation_tokens") {
    TAILOR_ASSIGN_OR_RETURN(t.validation_tokens, tokens_in(value, 0));
  } else if (name == "checkpoint_every") {
    TAILOR_ASSIGN_OR_RETURN(t.checkpoint_every_ms, parse_duration_ms(text_of(value)));
    if (t.checkpoint_every_ms < 1) return invalid("a checkpoint interval must be at least 1 ms");
  } else if (name == "optimizer.kind") {
    // adamw is the only one; the value was checked against the table.
  } else if (name == "optimizer.lr") {
    t.optimizer.lr = number_of(value);
  } else if (name == "optimizer.lr_mode") {
    const auto& mode = std::get<std::string>(value);
    t.optimizer.lr_mode = mode == "mup"        ? protocol::LrMode::kMup
                          : mode == "step_law" ? protocol::LrMode::kStepLaw
                                               : protocol::LrMode::kFixed;
  } else if (name == "optimizer.mup_base_width") {
    t.optimizer.mup_base_width = std::get<std::int64_t>(value);
  } else if (name == "optimizer.beta1") {
    t.optimizer.beta1 = number_of(value);
  } else if (name == "optimizer.beta2") {
    t.optimizer.beta2 = number_of(value);
  } else if (name == "optimizer.eps") {
    t.optimizer.eps = number_of(value);
  } else if (name == "optimizer.weight_decay") {
    t.optimizer.weight_decay = number_of(value);
  } else if (name == "optimizer.clip") {
    t.optimizer.clip = number_of(value);
  } else if (name == "schedule.kind") {
    const auto& kind = std::get<std::string>(value);
    t.schedule.kind = kind == "constant" ? protocol::LrScheduleKind::kConstant
                      : kind == "wsd"    ? protocol::LrScheduleKind::kWsd
                                         : protocol::LrScheduleKind::kCosine;
  } else if (name == "schedule.decay") {
    t.schedule.decay_fraction = number_of(value);
  } else if (name == "schedule.decay_shape") {
    t.schedule.decay_shape = std::get<std::string>(value) == "linear"
                                 ? protocol::DecayShape::kLinear
                                 : protocol::DecayShape::kOneMinusSqrt;
  } else if (name == "schedule.warmup") {
    return set_warmup(value, &t.schedule);
  } else if (name == "schedule.final") {
    t.schedule.final_fraction = number_of(value);
  } else {
    TAILOR_CHECK(false, "key {} is in the table but not set", path);
  }
  return Status::ok();
}

}  // namespace

std::span<const Key> architecture_keys() { return architecture_table(); }
std::span<const Key> train_keys() { return train_table(); }
std::span<const Key> budget_keys() { return budget_table(); }

const Key* find_key(std::string_view path) {
  for (const auto* table : {&architecture_table(), &train_table(), &budget_table()}) {
    for (const Key& key : *table) {
      if (key.path == path) return &key;
    }
  }
  return nullptr;
}

Status check_value(const Key& key, const AxisValue& value) {
  const auto wrong_type = [&](std::string_view wanted) {
    return invalid(fmt::format("`{}` must be {}", key.path, wanted));
  };
  switch (key.kind) {
    case KeyKind::kBoolean:
      return std::holds_alternative<bool>(value) ? Status::ok() : wrong_type("true or false");
    case KeyKind::kBetas:
      return wrong_type("two numbers in a file, `beta1` and `beta2` elsewhere");
    case KeyKind::kWidths: {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr) return wrong_type("a list of lists of widths");
      const auto widths = widths_from_text(*text);
      return widths ? Status::ok()
                    : invalid(fmt::format("`{}`: {}", key.path, widths.error().message()));
    }
    case KeyKind::kText:
      if (std::holds_alternative<std::string>(value) ||
          std::holds_alternative<std::int64_t>(value)) {
        return Status::ok();
      }
      return wrong_type("a string or an integer");
    case KeyKind::kChoice: {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr) return wrong_type("a string");
      if (std::find(key.allowed.begin(), key.allowed.end(), *text) != key.allowed.end()) {
        return Status::ok();
      }
      const std::string near = nearest_name(*text, key.allowed);
      return invalid(fmt::format("`{}` is \"{}\"{}; allowed: {}", key.path, *text,
                                 near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                                 fmt::join(key.allowed, ", ")));
    }
    case KeyKind::kInteger:
      if (!std::holds_alternative<std::int64_t>(value)) return wrong_type("an integer");
      break;
    case KeyKind::kNumber:
      if (!std::holds_alternative<std::int64_t>(value) && !std::holds_alternative<double>(value)) {
        return wrong_type("a number");
      }
      break;
  }
  const double number = number_of(value);
  if (number >= key.low && number <= key.high) return Status::ok();
  return invalid(
      fmt::format("`{}` is {}; allowed: {} to {}", key.path, to_text(value), key.low, key.high));
}

Result<std::int64_t> parse_token_count(std::string_view text) {
  TAILOR_ASSIGN_OR_RETURN(const double count, parse_count(without_word(text, "tokens")));
  if (!(count >= 0 && count <= kTokensMax)) {
    return error(Code::kInvalidArgument,
                 fmt::format("\"{}\" is no number of tokens; allowed: 0 to 1e15", text));
  }
  return std::llround(count);
}

Status set_train(std::string_view path, const AxisValue& value, std::int64_t sequence_length,
                 protocol::TrainSpec* train, double* tokens_per_parameter) {
  const Key* key = find_key(path);
  TAILOR_CHECK(key != nullptr && path.starts_with("train."), "path={}", path);
  TAILOR_RETURN_IF_ERROR(check_value(*key, value));
  protocol::TrainSpec changed = *train;
  double per_parameter = *tokens_per_parameter;
  const Status status = set_field(path, value, sequence_length, changed, per_parameter);
  if (!status.is_ok()) return status.with_context(fmt::format("`{}`", path));
  *train = changed;
  *tokens_per_parameter = per_parameter;
  return Status::ok();
}

Status finish_train(std::int64_t sequence_length, double tokens_per_parameter,
                    protocol::TrainSpec* train) {
  if (train->tokens <= 0 && tokens_per_parameter <= 0) {
    return invalid("`train.tokens` is missing: \"20 per parameter\", \"2.2B\" or an integer");
  }
  if (train->batch_tokens <= 0) {
    return invalid("`train.batch` is missing: \"0.5M tokens\" or an integer");
  }
  if (train->micro_batch_tokens > 0) {
    const std::int64_t batch = train->batch_tokens / sequence_length;
    const std::int64_t micro = std::min(batch, train->micro_batch_tokens / sequence_length);
    if (micro < 1) {
      return invalid(
          fmt::format("`train.micro_batch` is {} tokens; allowed: at least one sequence of {}",
                      train->micro_batch_tokens, sequence_length));
    }
    train->micro_batch_tokens = largest_divisor(batch, micro) * sequence_length;
  }
  return Status::ok();
}

}  // namespace tailor::sweep
