// Pretrained models against transformers' values (tests/data/model): logits, residual states and
// losses of all nine checkpoints under both config forms,
// and how far each known mistake would move them.
#include "model/pretrained/model.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/pretrained/config.h"
#include "tests/model/pretrained/reference_models.h"

namespace tailor::pretrained {
namespace {

using net::DecoderForm;
using nlohmann::json;
using test::npy;
using test::reference;
using test::relative_difference;
using testing::HasSubstr;

at::Tensor input_of(const std::string& name) {
  return npy(reference(test::input_of(name) + "/input_ids.npy"));
}

// Mean negative log-likelihood of the next token, from the logits in double.
double loss_of(const at::Tensor& logits_btv, const at::Tensor& tokens_bt) {
  const std::int64_t time = tokens_bt.size(1);
  const at::Tensor logs = at::log_softmax(logits_btv.narrow(1, 0, time - 1).to(at::kDouble), -1);
  return -logs.gather(2, tokens_bt.narrow(1, 1, time - 1).unsqueeze(2)).mean().item<double>();
}

struct Case {
  std::string name;
  std::string config;
};

class ReferenceModel : public testing::TestWithParam<Case> {};

TEST_P(ReferenceModel, LogitsStatesAndLossAreThoseOfTransformers) {
  const c10::NoGradGuard no_grad;
  const Case& param = GetParam();
  const test::TemporaryFolder temporary;
  const std::string folder = test::checkpoint_folder(param.name, param.config, temporary.path());
  const auto decoder = load_model(folder, at::kCPU, false);
  ASSERT_TRUE(decoder.has_value()) << decoder.error().message();
  const json expected = test::reference_index()["models"][param.name];
  const std::string states = test::states_of(param.name);

  const at::Tensor tokens = input_of(param.name);
  const at::Tensor logits = (*decoder)->logits(tokens);
  EXPECT_LT(relative_difference(logits, npy(reference(states + "/logits.npy"))), 5e-5);
  EXPECT_NEAR(loss_of(logits, tokens), expected["loss"].get<double>(),
              1e-5 * expected["loss"].get<double>());

  std::map<net::Place, std::vector<at::Tensor>> seen;
  const net::Tap tap = [&](net::Place place, std::int64_t, const at::Tensor& x_nd) {
    seen[place].push_back(x_nd.view({tokens.size(0), tokens.size(1), -1}));
  };
  (*decoder)->hidden(tokens, &tap);
  const std::pair<net::Place, std::string> places[] = {
      {net::Place::kAfterAttention, "resid_pre_ffn"},
      {net::Place::kAfterFfn, "resid_post_ffn"},
      {net::Place::kMlpInput, states == "olmo2" ? "resid_pre_ffn" : "mlp_in"},
      {net::Place::kMlpOutput, "mlp_out"}};
  for (const auto& [place, file] : places) {
    const std::string path = reference(states + "/" + file + ".npy");
    if (states == "llama_untied_bf16" && !std::filesystem::exists(path)) continue;
    ASSERT_EQ(seen[place].size(), 4u) << file;
    EXPECT_LT(relative_difference(at::stack(seen[place]), npy(path)), 5e-5) << file;
  }
}

TEST_P(ReferenceModel, TheChunkedLossIsThatOfTheLogits) {
  const c10::NoGradGuard no_grad;
  const Case& param = GetParam();
  const test::TemporaryFolder temporary;
  const auto decoder = load_model(
      test::checkpoint_folder(param.name, param.config, temporary.path()), at::kCPU, false);
  ASSERT_TRUE(decoder.has_value()) << decoder.error().message();
  const at::Tensor tokens = input_of(param.name);
  at::Tensor targets = tokens.roll(-1, 1);
  targets.select(1, tokens.size(1) - 1).fill_(-1);  // nothing follows the last token
  const auto scored = static_cast<double>(tokens.size(0) * (tokens.size(1) - 1));
  const double wanted = test::reference_index()["models"][param.name]["loss"];
  EXPECT_NEAR((*decoder)->loss(tokens, targets, 1 / scored).item<double>(), wanted, 1e-5 * wanted);
  EXPECT_NEAR((*decoder)->sequence_losses(tokens, targets).sum().item<double>() / scored, wanted,
              1e-5 * wanted);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string& name : test::reference_models()) {
    for (const char* config : {"config.json", "config.v5.json"}) {
      if (std::filesystem::exists(reference(name + "/" + config))) cases.push_back({name, config});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Nine, ReferenceModel, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return tested.param.name +
                                  (tested.param.config == "config.json" ? "" : "_v5");
                         });

TEST(PretrainedModel, ARunInBf16StaysAsNearAsTransformersOwn) {
  const c10::NoGradGuard no_grad;
  const auto decoder = load_model(reference("llama_untied_bf16"), at::kCPU, /*bf16=*/true);
  ASSERT_TRUE(decoder.has_value()) << decoder.error().message();
  const at::Tensor tokens = input_of("llama_untied_bf16");
  const at::Tensor logits = (*decoder)->logits(tokens).to(at::kDouble);
  const auto rms = [](const at::Tensor& x) { return x.square().mean().sqrt().item<double>(); };
  for (const char* file : {"logits_bf16_run.npy", "logits.npy"}) {
    const at::Tensor wanted =
        npy(reference("llama_untied_bf16/" + std::string(file))).to(at::kDouble);
    EXPECT_LT(rms(logits - wanted), 0.06 * rms(wanted)) << file;
  }
}

TEST(PretrainedModel, NothingIsKeptThatInferenceDoesNotNeed) {
  for (const bool bf16 : {false, true}) {
    const auto decoder = load_model(reference("llama_untied_bf16"), at::kCPU, bf16);
    ASSERT_TRUE(decoder.has_value());
    const net::ParameterSet& parameters = (*decoder)->parameters();
    EXPECT_FALSE(parameters.gradient().defined());
    EXPECT_FALSE(parameters.flat().requires_grad());
    // fp32: one buffer of everything. bf16: that one holds the gains alone.
    EXPECT_EQ(parameters.flat().numel(),
              bf16 ? parameters.size() - parameters.matrix_size() : parameters.size());
    const at::Tensor logits = (*decoder)->logits(input_of("llama_untied_bf16"));
    EXPECT_FALSE(logits.requires_grad());
  }
}

// A source whose tensors are changed on the way: rows or columns in another order.
class Reordered final : public TensorSource {
 public:
  // Gives the new values of a whole tensor, from its old ones.
  using Change = std::function<void(const SourceTensor&, std::vector<float>&)>;
  Reordered(const TensorSource& source, Change change)
      : source_(source), change_(std::move(change)) {}
  const std::string& path() const override { return source_.path(); }
  const std::vector<SourceTensor>& tensors() const override { return source_.tensors(); }
  Status read(std::string_view name, std::int64_t first, std::span<float> values) const override {
    const SourceTensor* tensor = find(name);
    std::vector<float> all(static_cast<std::size_t>(tensor->elements()));
    TAILOR_RETURN_IF_ERROR(source_.read(name, 0, all));
    change_(*tensor, all);
    std::copy_n(all.begin() + first, values.size(), values.begin());
    return Status::ok();
  }

 private:
  const TensorSource& source_;
  Change change_;
};

// Reorders blocks of `size` rows (or columns): block i of the result is block order[i].
void reorder(std::vector<float>& values, std::int64_t rows, std::int64_t columns, bool by_column,
             std::int64_t size, const std::vector<std::int64_t>& order) {
  const std::vector<float> old = values;
  const std::int64_t count = by_column ? columns : rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = order[static_cast<std::size_t>(i / size)] * size + i % size;
    if (by_column) {
      for (std::int64_t r = 0; r < rows; ++r)
        values[static_cast<std::size_t>(r * columns + i)] =
            old[static_cast<std::size_t>(r * columns + from)];
    } else {
      std::copy_n(old.begin() + from * columns, columns, values.begin() + i * columns);
    }
  }
}

bool has(const SourceTensor& tensor, std::string_view part) {
  return tensor.name.find(part) != std::string::npos;
}

// RoPE that turns neighbours (2i, 2i+1) instead of halves (i, i + e/2), on the same weights.
Reordered::Change interleaved(const DecoderForm& form) {
  return [e = form.head_dim](const SourceTensor& tensor, std::vector<float>& values) {
    if (!has(tensor, ".q_proj.") && !has(tensor, ".k_proj.") && !has(tensor, "q_norm") &&
        !has(tensor, "k_norm")) {
      return;
    }
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t in_head = i % e;
      order.push_back(i - in_head + (in_head < e / 2 ? 2 * in_head : 2 * (in_head - e / 2) + 1));
    }
    reorder(values, rows, columns, false, 1, order);
  };
}

// Query head h using key head h % G instead of h / (H/G).
Reordered::Change tiled(const DecoderForm& form) {
  return [form](const SourceTensor& tensor, std::vector<float>& values) {
    const bool out = has(tensor, ".o_proj.");
    const bool whole_norm = has(tensor, "q_norm") && form.qk_norm == net::QkNorm::kWhole;
    if (!has(tensor, ".q_proj.") && !out && !whole_norm) return;
    const std::int64_t group = form.heads / form.kv_heads;
    std::vector<std::int64_t> order;
    for (std::int64_t p = 0; p < form.heads; ++p)
      order.push_back(p % group * form.kv_heads + p / group);
    reorder(values, tensor.shape[0], tensor.shape.size() > 1 ? tensor.shape[1] : 1, out,
            form.head_dim, order);
  };
}

// Drops parts that the changed form has no place for.
class Without final : public TensorSource {
 public:
  Without(const TensorSource& source, std::string part) : source_(source) {
    for (const SourceTensor& tensor : source.tensors()) {
      if (!has(tensor, part)) tensors_.push_back(tensor);
    }
  }
  const std::string& path() const override { return source_.path(); }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  Status read(std::string_view name, std::int64_t first, std::span<float> values) const override {
    return source_.read(name, first, values);
  }

 private:
  const TensorSource& source_;
  std::vector<SourceTensor> tensors_;
};

void swap_windows(DecoderForm& form) {
  std::int64_t window = 0;
  for (const net::LayerForm& layer : form.layers) window = std::max(window, layer.window);
  for (net::LayerForm& layer : form.layers) {
    layer.window = layer.window > 0 ? 0 : window;
    if (form.ropes.size() > 1) layer.rope = 1 - layer.rope;
  }
}

// The logits of `name` with one mistake made.
Result<at::Tensor> wrong_logits(const std::string& name, const std::string& mistake) {
  TAILOR_ASSIGN_OR_RETURN(const auto source, open_pretrained(reference(name)));
  TAILOR_ASSIGN_OR_RETURN(DecoderForm form, read_config(reference(name)));
  Reordered::Change change = [](const SourceTensor&, std::vector<float>&) {};
  std::string without;
  std::ifstream file(reference(name + "/config.json"));
  const json config = json::parse(file);
  const double theta = config.value("rope_theta", 10000.0);
  const auto plain = net::rope_frequencies(form.head_dim, theta);
  if (mistake == "no_rope_scaling") {
    form.ropes[0] = plain;
  } else if (mistake == "hard_rope_scaling") {
    // Every frequency slowed down, the fast ones too.
    for (std::size_t i = 0; i < plain.size(); ++i)
      form.ropes[0][i] = plain[i] / config["rope_scaling"]["factor"].get<double>();
  } else if (mistake == "one_rope_base") {
    form.ropes[1] = form.ropes[0];
  } else if (mistake == "interleaved_rope") {
    change = interleaved(form);
  } else if (mistake == "tiled_kv_heads") {
    change = tiled(form);
  } else if (mistake == "no_qk_norm") {
    form.qk_norm = net::QkNorm::kNone;
    without = "k_norm";
  } else if (mistake == "no_post_ffn_norm") {
    if (form.ffn_norm_behind) {
      form.ffn_norm_behind = false;
    } else {
      form.ffn_norm = shape::FfnNorm::kNone;
    }
    without = "post_feedforward_layernorm";
  } else if (mistake == "no_sliding_window") {
    for (net::LayerForm& layer : form.layers) layer = {layer.widths};  // of the full kind
  } else if (mistake == "window_off_by_one") {
    for (net::LayerForm& layer : form.layers) layer.window += layer.window > 0 ? 1 : 0;
  } else if (mistake == "swapped_sliding_layers") {
    swap_windows(form);
  } else if (mistake == "no_attn_softcap") {
    form.score_cap = 0;
  } else if (mistake == "no_final_softcap") {
    form.logit_cap = 0;
  } else if (mistake == "exact_gelu") {
    form.activation = net::Activation::kGelu;
  } else if (mistake == "norm_without_plus_one") {
    form.gain_plus_one = false;
  } else if (mistake == "no_embed_scale") {
    form.embedding_scale = 1;
  } else if (mistake == "head_dim_scale") {
    form.attention_scale = 0;
  } else {
    return error(Code::kUnimplemented, mistake);
  }
  const Reordered reordered(*source, change);
  const Without fewer(reordered, without.empty() ? "(none)" : without);
  std::unique_ptr<const Without> second;
  const TensorSource* used = &fewer;
  if (without == "k_norm") {
    second = std::make_unique<const Without>(fewer, "q_norm");
    used = second.get();
  }
  TAILOR_ASSIGN_OR_RETURN(const auto decoder, load_decoder(form, *used, at::kCPU, false));
  return decoder->logits(input_of(name));
}

TEST(PretrainedModel, EveryKnownMistakeIsToldApartAndLiesWhereItShould) {
  const c10::NoGradGuard no_grad;
  const json index = test::reference_index()["models"];
  int told_apart = 0;
  for (const std::string& name : test::reference_models()) {
    if (!index[name].contains("wrong_variants")) continue;
    const at::Tensor right = npy(reference(name + "/logits.npy"));
    for (const auto& [mistake, expected] : index[name]["wrong_variants"].items()) {
      // Gains of a whole vector are not those of one head: not a form that a checkpoint can have.
      if (mistake == "per_head_qk_norm") continue;
      const auto logits = wrong_logits(name, mistake);
      ASSERT_TRUE(logits.has_value()) << name << " " << mistake << logits.error().message();
      const double moved = relative_difference(*logits, right);
      const double wanted = expected["max_rel_logits"];
      EXPECT_GT(moved, 5e-5) << name << " " << mistake;
      EXPECT_NEAR(moved, wanted, 1e-4 + 0.001 * wanted) << name << " " << mistake;
      const double loss = expected["loss"];
      EXPECT_NEAR(loss_of(*logits, input_of(name)), loss, 1e-4 * loss) << name << " " << mistake;
      ++told_apart;
    }
  }
  EXPECT_EQ(told_apart, 4 + 4 + 4 + 4 + 12 + 13);
}

class LoadingTest : public testing::Test {
 protected:
  // llama_tied's tensors after `edit`, loaded under its config.
  Status load_edited(const std::function<void(std::map<std::string, TensorData>&)>& edit) {
    const auto source = open_pretrained(reference("llama_tied"));
    std::map<std::string, std::vector<float>> values;
    std::map<std::string, TensorData> data;
    for (const SourceTensor& tensor : (*source)->tensors()) {
      auto& kept = values[tensor.name];
      kept.resize(static_cast<std::size_t>(tensor.elements()));
      EXPECT_TRUE((*source)->read(tensor.name, 0, kept).is_ok());
      data[tensor.name] = {tensor.name, DType::kF32, tensor.shape, kept.data()};
    }
    edit(data);
    std::vector<TensorData> list;
    for (const auto& [name, tensor] : data) list.push_back(tensor);
    EXPECT_TRUE(write_safetensors(folder_.path() + "/model.safetensors", list).has_value());
    std::filesystem::copy_file(reference("llama_tied/config.json"), folder_.path() + "/config.json",
                               std::filesystem::copy_options::overwrite_existing);
    return status_of(load_model(folder_.path(), at::kCPU, false));
  }

  test::TemporaryFolder folder_;
};

TEST_F(LoadingTest, MissingLeftOverAndMisshapenTensorsAreNamed) {
  const std::string norm = "model.layers.2.input_layernorm.weight";
  EXPECT_TRUE(load_edited([](auto&) {}).is_ok());
  Status status = load_edited([&](auto& data) { data.erase(norm); });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(norm));
  status = load_edited([&](auto& data) { data[norm].shape = {8, 8}; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(norm));
  EXPECT_THAT(status.message(), HasSubstr("[8, 8]"));
  const float bias[64] = {};
  status = load_edited([&](auto& data) {
    const std::string name = "model.layers.0.self_attn.q_proj.bias";
    data[name] = {name, DType::kF32, {64}, bias};
  });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("q_proj.bias"));
}

TEST_F(LoadingTest, AStoredHeadBesideATiedEmbeddingMustEqualIt) {
  const auto with_head = [](std::map<std::string, TensorData>& data) {
    TensorData head = data["model.embed_tokens.weight"];
    head.name = "lm_head.weight";
    data["lm_head.weight"] = head;
  };
  EXPECT_TRUE(load_edited(with_head).is_ok());
  std::vector<float> other(256 * 64, 1.0f);
  const Status status = load_edited([&](auto& data) {
    with_head(data);
    data["lm_head.weight"].data = other.data();
  });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("lm_head.weight"));
}

}  // namespace
}  // namespace tailor::pretrained
