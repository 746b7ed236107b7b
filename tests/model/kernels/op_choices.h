// Every network that the walks of op_walk.h take: the published families, the options of a sweep
// file's [architecture] and [train], and the options of net/form.h.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/pretrained/config.h"
#include "sweep/architecture_file.h"
#include "sweep/keys.h"
#include "tests/model/kernels/op_walk.h"
#include "tests/model/support.h"

namespace tailor::kernels::test {

/// A thing that may be chosen, and its levels: lines of a sweep file.
struct Factor {
  std::string name;
  std::vector<std::string> levels;
};

/// The factors of [architecture]. Each key of sweep/keys.cc is in one: choices and switches with
/// all that they allow, others with the sizes given here.
inline std::vector<Factor> architecture_factors() {
  // ffn.kind and ffn.k depend on each other, as do ffn.d_h and d_h_ratio.
  std::vector<Factor> factors = {
      {"ffn.kind ffn.k",
       {"ffn.kind = \"swiglu\"\n", "ffn.kind = \"hourglass\"\nffn.k = 1\n",
        "ffn.kind = \"hourglass\"\nffn.k = 3\n"}},
      {"ffn.d_h d_h_ratio", {"ffn.d_h = 24\n", "ffn.d_h = 7\n", "d_h_ratio = 1.25\n"}},
  };
  const std::map<std::string_view, std::vector<std::string>> sizes = {
      {"d_model", {"16", "15"}}, {"layers", {"2", "1"}},   {"head_dim", {"8", "6"}},
      {"heads", {"2", "4"}},     {"kv_heads", {"1", "2"}}, {"vocab_size", {"32", "33"}},
      {"rope_theta", {"10000"}}, {"norm_eps", {"1e-5"}},   {"schedule.high", {"1.5"}},
      {"schedule.low", {"0.5"}}};
  for (const sweep::Key& key : sweep::architecture_keys()) {
    const std::string path(key.path);
    if (path == "ffn.kind" || path == "ffn.k" || path == "ffn.d_h" || path == "d_h_ratio") continue;
    // Widths that are given, and how a schedule comes to its own, are sizes as d_h is one.
    const bool shape_of_schedule = path.starts_with("schedule.") && path != "schedule.kind" &&
                                   path != "schedule.high" && path != "schedule.low";
    if (path == "widths" || shape_of_schedule) continue;
    Factor& factor = factors.emplace_back();
    factor.name = path;
    std::vector<std::string> values;
    if (key.kind == sweep::KeyKind::kBoolean) {
      values = {"false", "true"};
    } else if (key.kind == sweep::KeyKind::kChoice) {
      for (const std::string_view value : key.allowed) {
        // Cut from a measurement: no network before that.
        if (path == "schedule.kind" && value == "geometry") continue;
        values.push_back(fmt::format("\"{}\"", value));
      }
    } else if (const auto found = sizes.find(path); found != sizes.end()) {
      values = found->second;
    } else {
      ADD_FAILURE() << "the walk does not know the key `" << path << "` of [architecture]";
      values = {"1"};
    }
    for (const std::string& value : values) {
      factor.levels.push_back(fmt::format("{} = {}\n", path, value));
    }
  }
  return factors;
}

/// The keys of [train] that reach operators; the others are about data, time, files and numbers
/// that operators are given.
inline std::vector<Factor> train_factors() {
  const std::set<std::string_view> walked = {
      "train.precision",   "train.recompute",         "train.z_loss",
      "train.micro_batch", "train.optimizer.lr_mode", "train.optimizer.clip"};
  const std::set<std::string_view> elsewhere = {"train.tokens",
                                                "train.batch",
                                                "train.init_std",
                                                "train.dn_init",
                                                "train.keep_last",
                                                "train.keep_best",
                                                "train.nan_skip_limit",
                                                "train.log_every",
                                                "train.evaluate_every",
                                                "train.checkpoint_every",
                                                "train.validation_tokens",
                                                "train.optimizer.kind",
                                                "train.optimizer.lr",
                                                "train.optimizer.mup_base_width",
                                                "train.optimizer.betas",
                                                "train.optimizer.beta1",
                                                "train.optimizer.beta2",
                                                "train.optimizer.eps",
                                                "train.optimizer.weight_decay",
                                                "train.schedule.kind",
                                                "train.schedule.decay",
                                                "train.schedule.decay_shape",
                                                "train.schedule.warmup",
                                                "train.schedule.final"};
  for (const sweep::Key& key : sweep::train_keys()) {
    EXPECT_TRUE(walked.contains(key.path) || elsewhere.contains(key.path))
        << "the walk does not know the key `" << key.path << "`: does it reach operators?";
  }
  return {{"precision", {"f32", "bf16"}}, {"recompute", {"kept", "recomputed"}},
          {"z_loss", {"0", "1e-4"}},      {"micro_batch", {"whole", "1"}},
          {"lr_mode", {"fixed", "mup"}},  {"clip", {"1", "0"}}};
}

/// Sets what `level` of a factor of train_factors() says.
inline void set_train(const std::string& factor, std::size_t level, Choice& choice) {
  const bool on = level == 1;
  if (factor == "precision") choice.bf16 = on;
  if (factor == "recompute") choice.recompute = on;
  if (factor == "z_loss") choice.z_loss = on ? 1e-4 : 0;
  if (factor == "micro_batch") choice.micro_rows = on ? 1 : 0;
  if (factor == "lr_mode") choice.own_rates = on;
  if (factor == "clip") choice.clip = on ? 0 : 1;
}

/// The network of a sweep file's lines.
inline net::DecoderForm form_of_lines(const std::string& lines) {
  const auto architecture = sweep::parse_architecture_toml(lines, "walk.toml");
  EXPECT_TRUE(architecture.has_value()) << lines;
  if (!architecture) return net::form_of(tailor::test::small_architecture());
  return net::form_of(*architecture);
}

inline std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

/// One choice for levels of architecture_factors(), then train_factors().
inline Choice choice_of(const std::vector<Factor>& shape, const std::vector<Factor>& train,
                        const std::vector<std::size_t>& levels) {
  Choice choice;
  std::string lines;
  for (std::size_t i = 0; i < shape.size(); ++i) lines += shape[i].levels[levels[i]];
  choice.form = form_of_lines(lines);
  choice.name = one_line(lines);
  for (std::size_t i = 0; i < train.size(); ++i) {
    set_train(train[i].name, levels[shape.size() + i], choice);
    choice.name += fmt::format("{} {};", train[i].name, train[i].levels[levels[shape.size() + i]]);
  }
  return choice;
}

/// The full product of the options that choose operators and their types; all others at their first
/// level.
inline std::vector<Choice> product_choices() {
  const std::vector<Factor> shape = architecture_factors();
  const std::vector<Factor> train = train_factors();
  const std::set<std::string> full = {"family",       "ffn.kind ffn.k",   "ffn.norm",
                                      "norm_scaling", "residual_scaling", "precision",
                                      "recompute"};
  std::vector<std::size_t> counts;
  for (const std::vector<Factor>* part : {&shape, &train}) {
    for (const Factor& factor : *part) {
      counts.push_back(full.contains(factor.name) ? factor.levels.size() : 1);
    }
  }
  std::vector<Choice> choices;
  std::vector<std::size_t> levels(counts.size());
  while (true) {
    choices.push_back(choice_of(shape, train, levels));
    std::size_t i = 0;
    while (i < levels.size() && ++levels[i] == counts[i]) levels[i++] = 0;
    if (i == levels.size()) return choices;
  }
}

/// Any two levels of any two options of [architecture] and [train].
inline std::vector<Choice> pairwise_choices() {
  const std::vector<Factor> shape = architecture_factors();
  const std::vector<Factor> train = train_factors();
  std::vector<std::size_t> counts;
  for (const std::vector<Factor>* part : {&shape, &train}) {
    for (const Factor& factor : *part) counts.push_back(factor.levels.size());
  }
  std::vector<Choice> choices;
  for (const auto& levels : pairwise(counts)) choices.push_back(choice_of(shape, train, levels));
  return choices;
}

/// Any two values of any two fields of net/form.h, whether a family or a sweep file has them or
/// not.
inline std::vector<Choice> form_choices() {
  using shape::FfnNorm;
  const net::DecoderForm base = net::form_of(tailor::test::small_architecture());
  std::vector<Choice> choices;
  for (const auto& l : pairwise({2, 2, 2, 3, 2, 2, 2, 2, 2, 3, 5, 2, 2, 3, 2, 2, 2, 2})) {
    Choice choice;
    net::DecoderForm& form = choice.form = base;
    form.attention_norm_before = l[0] == 0;
    form.attention_norm_behind = l[1] == 1;
    form.tied_head = l[2] == 0;
    form.qk_norm = static_cast<net::QkNorm>(l[3]);
    form.attention_scale = l[4] == 1 ? 0.3 : 0;
    form.score_cap = l[5] == 1 ? 3 : 0;
    form.logit_cap = l[6] == 1 ? 4 : 0;
    form.layers[0].window = l[7] == 1 ? 5 : 0;
    form.gain_plus_one = l[8] == 1;
    const bool stack = l[9] > 0;
    form.ffn_kind = stack ? shape::FfnKind::kHourglass : shape::FfnKind::kSwiglu;
    for (net::LayerForm& layer : form.layers) {
      layer.widths = l[9] == 2 ? shape::LayerWidths{24, 7} : shape::LayerWidths{24};
    }
    form.ffn_norm = static_cast<FfnNorm>(l[10]);
    form.ffn_norm_behind = l[11] == 1;
    form.ffn_outer_residual = l[12] == 1;
    form.activation = static_cast<net::Activation>(l[13]);
    form.norm_scaling = l[14] == 1;
    form.residual_scaling = l[15] == 1;
    form.embedding_scale = l[16] == 1 ? 4 : 1;
    choice.bf16 = l[17] == 1;
    choice.recompute = l[1] == l[2];
    choice.name = "a form of net/form.h with levels";
    for (const std::size_t level : l) choice.name += fmt::format(" {}", level);
    choices.push_back(choice);
  }
  return choices;
}

/// The published families, by the configs of the reference models: longer and shorter than their
/// windows, in both precisions. `types`: their model_type fields.
inline std::vector<Choice> published_choices(std::set<std::string>* types) {
  std::vector<Choice> choices;
  for (const char* name : {"llama_untied", "llama_tied", "olmo2", "mistral", "gemma2", "gemma3",
                           "gemma3_multimodal_prefix"}) {
    const std::string folder = tailor::test::reference(name);
    const auto form = pretrained::read_config(folder);
    EXPECT_TRUE(form.has_value()) << folder;
    if (!form) continue;
    std::ifstream file(folder + "/config.json");
    types->insert(nlohmann::json::parse(file).at("model_type").get<std::string>());
    for (const bool bf16 : {false, true}) {
      for (const std::int64_t time : {3, 40}) {
        for (const bool recompute : {false, true}) {
          Choice choice;
          choice.name = fmt::format("{} in {}, {} tokens", name, bf16 ? "bf16" : "f32", time);
          choice.form = *form;
          choice.bf16 = bf16;
          choice.time = time;
          choice.recompute = recompute;
          choices.push_back(choice);
        }
      }
    }
  }
  return choices;
}

/// All of the above.
inline std::vector<Choice> all_choices() {
  std::set<std::string> types;
  std::vector<Choice> choices = published_choices(&types);
  for (const std::vector<Choice>& more : {product_choices(), pairwise_choices(), form_choices()}) {
    choices.insert(choices.end(), more.begin(), more.end());
  }
  return choices;
}

}  // namespace tailor::kernels::test
