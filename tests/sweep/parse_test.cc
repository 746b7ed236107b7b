#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "base/file.h"
#include "sweep/retry_rules.h"
#include "tests/sweep/sweep_text.h"

namespace tailor::sweep {
namespace {

using protocol::EndClass;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Parse, EveryKeyOfTheFileArrivesInTheSpec) {
  const auto spec = parse(R"(
name = "full-1"
description = "all keys"
objectives = ["validation_loss"]
baseline = "b"
[data]
train = "a/t-*.tokens, /abs/u.tokens"
validation = "../v.tokens"
sequence_length = 256
[architecture]
family = "llama"
d_model = 128
layers = 4
head_dim = 32
heads = 4
kv_heads = 4
vocab_size = 512
tie_embeddings = false
rope_theta = 20000
norm_eps = 1e-6
ffn = { kind = "swiglu", d_h = 512, norm = "per_sub", outer_residual = false }
[budget]
parameters = 1_048_576
counts = "body"
solve_for = "d_h"
width_multiple = 8
tolerance = 5
attention = "free"
[[candidate]]
name = "b"
[[candidate]]
name = "dotted"
"ffn.kind" = "hourglass"
ffn.k = 4
train = { optimizer = { lr = 0.5, betas = [0.8, 0.9] } }
[space]
"ffn.kind" = ["hourglass"]
layers = { min = 2, max = 8, step = 2 }
"train.optimizer.lr" = { min = 1e-4, max = 1e-2, log = true }
"train.batch" = [1024, "2k tokens"]
constraints = ["k >= 1"]
[search]
algorithm = "random"
trials = 12
seed = 9
[early_stopping]
kind = "none"
[train]
tokens = "2.2B"
batch = "10k tokens"
micro_batch = "3k tokens"
optimizer = { kind = "adamw", lr = 3e-3, betas = [0.85, 0.97], eps = 1e-9, )"
                          R"(weight_decay = 0.2, clip = 0.5, lr_mode = "mup", mup_base_width = 192 }
schedule = { kind = "wsd", warmup = "2.5 %", final = 0.2, decay = 0.3, decay_shape = "1-sqrt" }
precision = "bf16"
init_std = 0.03
log_every = 7
evaluate_every = "1M tokens"
checkpoint_every = "90 s"
validation_tokens = "64k"
dn_init = "fan_in"
z_loss = 1e-5
recompute = true
keep_last = 4
keep_best = true
nan_skip_limit = 3
[seeds]
list = [3, 1, 9]
[evaluate]
perplexity = true
geometry = { layers = [0, 1], tokens = 64, subsamples = 4, rho = 0.9, sub_blocks = true }
[resources]
gpus = 4
nodes = 2
nodes_min = 1
gpu_memory = "20 GiB"
memory = "64 GiB"
labels = ["rack=3", "big", "big"]
parallel = 16
priority = -3
preemptible = false
[limits]
progress = "10 min"
attempt = "6h"
trial = "2d"
[retry]
oom = 4
timeout = 0
)",
                          "f.toml", "/base/dir");
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->name, "full-1");
  EXPECT_EQ(spec->description, "all keys");
  EXPECT_THAT(spec->objectives, ElementsAre("validation_loss"));
  EXPECT_EQ(spec->baseline, "b");
  EXPECT_EQ(spec->data, (protocol::DataSpec{"/base/dir/a/t-*.tokens,/abs/u.tokens",
                                            "/base/dir/../v.tokens", 256}));
  EXPECT_EQ(spec->architecture.at("ffn.d_h"), AxisValue(std::int64_t{512}));
  EXPECT_EQ(spec->architecture.size(), 14u);
  ASSERT_TRUE(spec->budget.has_value());
  EXPECT_EQ(spec->budget->parameters, 1'048'576);
  EXPECT_EQ(spec->budget->width_multiple, 8);
  EXPECT_EQ(spec->budget->tolerance, 5);
  EXPECT_FALSE(spec->budget->fix_attention);
  ASSERT_EQ(spec->candidates.size(), 2u);
  EXPECT_EQ(spec->candidates[1].overrides, (Point{{"ffn.kind", std::string("hourglass")},
                                                  {"ffn.k", std::int64_t{4}},
                                                  {"train.optimizer.lr", 0.5},
                                                  {"train.optimizer.beta1", 0.8},
                                                  {"train.optimizer.beta2", 0.9}}));
  ASSERT_EQ(spec->space.size(), 4u);
  EXPECT_EQ(spec->space[0].path, "ffn.kind");
  EXPECT_EQ(spec->space[1].path, "layers");
  EXPECT_TRUE(spec->space[1].is_integer);
  EXPECT_EQ(spec->space[1].grid_size(), 4u);
  EXPECT_EQ(spec->space[2].path, "train.optimizer.lr");
  EXPECT_TRUE(spec->space[2].log);
  EXPECT_EQ(spec->space[3].values[1], AxisValue(std::string("2k tokens")));
  EXPECT_THAT(spec->constraints, ElementsAre("k >= 1"));
  EXPECT_EQ(spec->search.algorithm, "random");
  EXPECT_EQ(spec->search.trials, 12u);
  EXPECT_EQ(spec->search.seed, 9u);
  EXPECT_EQ(spec->train.tokens, 2'200'000'000);
  EXPECT_EQ(spec->tokens_per_parameter, 0);
  EXPECT_EQ(spec->train.batch_tokens, 39 * 256);       // 39.06 sequences
  EXPECT_EQ(spec->train.micro_batch_tokens, 3 * 256);  // 11 sequences at most, 3 divide 39
  EXPECT_EQ(spec->train.optimizer, (protocol::OptimizerSpec{3e-3, 0.85, 0.97, 1e-9, 0.2, 0.5,
                                                            protocol::LrMode::kMup, 192}));
  EXPECT_EQ(spec->train.schedule,
            (protocol::LrScheduleSpec{protocol::LrScheduleKind::kWsd, 0.025, -1, 0.2, 0.3,
                                      protocol::DecayShape::kOneMinusSqrt}));
  EXPECT_EQ(spec->train.precision, protocol::Precision::kBf16);
  EXPECT_EQ(spec->train.init_std, 0.03);
  EXPECT_EQ(spec->train.log_every_steps, 7);
  EXPECT_EQ(spec->train.evaluate_every_tokens, 1'000'000);
  EXPECT_EQ(spec->train.checkpoint_every_ms, 90'000);
  EXPECT_EQ(spec->train.validation_tokens, 64'000);
  EXPECT_EQ(spec->train.down_init, protocol::DownInit::kFanIn);
  EXPECT_EQ(spec->train.z_loss, 1e-5);
  EXPECT_TRUE(spec->train.recompute);
  EXPECT_EQ(spec->train.keep_last, 4);
  EXPECT_TRUE(spec->train.keep_best);
  EXPECT_EQ(spec->train.nan_skip_limit, 3);
  EXPECT_THAT(spec->seeds, ElementsAre(3u, 1u, 9u));
  EXPECT_EQ(spec->geometry, (protocol::GeometrySpec{true, {0, 1}, 64, 4, 0.9, true}));
  const ResourceSpec resources = {4,  0,  2,    1, 20ull << 30, 64ull << 30, {"big", "rack=3"},
                                  16, -3, false};
  EXPECT_EQ(spec->resources, resources);
  EXPECT_EQ(spec->resources.ranks(), 8);
  EXPECT_EQ(resources_text(resources),
            "4 GPUs of at least 20.0 GiB, 64.0 GiB of memory on each of 1 to 2 nodes (4 to 8 "
            "ranks) where there is big, rack=3");
  ResourceSpec rigid = resources;
  rigid.nodes_min = 2;
  EXPECT_EQ(resources_text(rigid),
            "4 GPUs of at least 20.0 GiB, 64.0 GiB of memory on each of 2 nodes (8 ranks) where "
            "there is big, rack=3");
  EXPECT_EQ(spec->limits, (LimitSpec{600'000, 21'600'000, 172'800'000}));
  EXPECT_EQ(spec->retry.at(EndClass::kOom), 4);
  EXPECT_EQ(spec->retry.at(EndClass::kTimeout), 0);
}

TEST(Parse, WhatIsLeftOutHasItsDefault) {
  const Spec spec = parse_or_die({});
  EXPECT_THAT(spec.objectives, ElementsAre("validation_loss"));
  EXPECT_THAT(spec.seeds, ElementsAre(1u));
  EXPECT_FALSE(spec.geometry.enabled);
  EXPECT_EQ(spec.tokens_per_parameter, 2);
  EXPECT_EQ(spec.train.precision, protocol::Precision::kF32);
  EXPECT_EQ(spec.train.checkpoint_every_ms, 600'000);
  EXPECT_EQ(spec.resources, ResourceSpec{});
  EXPECT_EQ(resources_text(spec.resources), "1 CPU slot");
  EXPECT_EQ(spec.resources.ranks(), 1);
  EXPECT_EQ(spec.limits, LimitSpec{});
  const std::map<EndClass, std::int32_t> retry = {
      {EndClass::kInfrastructure, 5}, {EndClass::kNodeLost, 5}, {EndClass::kLeaseLost, 5},
      {EndClass::kPreempted, 20},     {EndClass::kOom, 1},      {EndClass::kNan, 0},
      {EndClass::kData, 0},           {EndClass::kUser, 0},     {EndClass::kTimeout, 1}};
  EXPECT_EQ(spec.retry, retry);
}

TEST(Parse, TheDocumentationNamesTheDefaultsOfTheOneTableOfRetries) {
  const auto text = read_file(TAILOR_SOURCE_DIR "/docs/sweep-file.md");
  ASSERT_TRUE(text.has_value());
  std::string listed;
  for (const RetryRule& rule : retry_rules()) {
    listed += fmt::format("{}`{}` {}", listed.empty() ? "" : ", ",
                          protocol::end_class_name(rule.end), rule.limit);
  }
  EXPECT_THAT(*text,
              HasSubstr("| `retry.CLASS` | integer | see right | further attempts: " + listed));
}

TEST(Parse, WarmUpMayBeAShareOrASteps) {
  const auto schedule = [](const std::string& warmup) {
    SweepText text;
    text.train += "schedule.warmup = " + warmup + "\n";
    return parse_or_die(text).train.schedule;
  };
  EXPECT_EQ(schedule("\"1 %\"").warmup_fraction, 0.01);
  EXPECT_EQ(schedule("\"1%\"").warmup_steps, -1);
  EXPECT_EQ(schedule("\"200 steps\"").warmup_steps, 200);
  EXPECT_EQ(schedule("0").warmup_steps, 0);
}

TEST(Parse, ARangeOfTheSolvedWidthBecomesABound) {
  SweepText text;
  text.space =
      "[space]\n\"ffn.kind\" = [\"hourglass\"]\n\"ffn.k\" = [2]\nd_h_ratio = { min = 0.2, max = "
      "1.5 }\n";
  const Spec spec = parse_or_die(text);
  EXPECT_EQ(spec.space.size(), 2u);
  EXPECT_THAT(spec.constraints, ElementsAre("0.2 <= d_h_ratio <= 1.5"));
}

/// The position of the last `needle` in `text` as "LINE:COLUMN"; "^" is the start of the file.
std::string place(const std::string& text, const std::string& needle) {
  if (needle == "^") return "1:1";
  const std::size_t at = text.rfind(needle);
  EXPECT_NE(at, std::string::npos) << needle;
  if (at == std::string::npos) return "";
  const std::string before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  return std::to_string(line) + ":" + std::to_string(at - (before.rfind('\n') + 1) + 1);
}

struct BadInput {
  std::function<void(SweepText&)> spoil;
  const char* at;       ///< the error stands where this text stands last
  const char* message;  ///< how the error goes on
};

TEST(Parse, EveryMistakeIsAnsweredWithItsExactPositionAndWhatIsAllowed) {
  const BadInput cases[] = {
      // Unknown keys, with the nearest known one.
      {[](auto& t) { t.top += "descripton = \"x\"\n"; }, "descripton",
       "unknown key `descripton` (did you mean `description`?)"},
      {[](auto& t) { t.rest = "[serach]\n"; }, "serach",
       "unknown key `serach` (did you mean `search`?)"},
      {[](auto& t) { t.data += "sequence = 3\n"; }, "sequence = 3", "unknown key `data.sequence`"},
      {[](auto& t) { t.architecture += "dmodel = 3\n"; }, "dmodel",
       "unknown key `architecture.dmodel` (did you mean `d_model`?)"},
      {[](auto& t) { t.train += "optimizer = { kind = \"adamw\", lrr = 1 }\n"; }, "lrr",
       "unknown key `train.optimizer.lrr` (did you mean `lr`?)"},
      {[](auto& t) { t.candidates += "layer = 3\n"; }, "layer = 3",
       "unknown key `candidate[1].layer` (did you mean `layers`?)"},
      {[](auto& t) { t.space = "[space]\n\"ffn.kk\" = [1]\n"; }, "\"ffn.kk\"",
       "unknown key `space.\"ffn.kk\"` (did you mean `ffn.k`?)"},
      {[](auto& t) { t.rest = "[resources]\ngpu_memroy = \"20 GiB\"\n"; }, "gpu_memroy",
       "unknown key `resources.gpu_memroy`"},
      {[](auto& t) { t.rest = "[resources]\ngpu_memory = \"20 GiB\"\n"; }, "\"20 GiB\"",
       "`resources.gpu_memory` needs `resources.gpus` above 0"},
      {[](auto& t) { t.rest = "[resources]\ngpus = 1\ncpus = 2\n"; }, "2\n",
       "`resources.cpus` and `resources.gpus` exclude each other"},
      {[](auto& t) { t.rest = "[resources]\nnodes = 0\n"; }, "0\n",
       "`resources.nodes` is 0; allowed: 1 to 4096"},
      {[](auto& t) { t.rest = "[resources]\nnodes = 2\nnodes_min = 3\n"; }, "3\n",
       "`resources.nodes_min` is 3; allowed: 1 to 2"},
      {[](auto& t) { t.rest = "[resources]\nlabels = [\"a b\"]\n"; }, "\"a b\"",
       "`resources.labels[0]` is no label"},
      {[](auto& t) { t.rest = "[resources]\nlabels = [3]\n"; }, "3]\n",
       "`resources.labels[0]` must be a string"},
      {[](auto& t) { t.rest = "[limits]\nprogress = \"10 ms\"\n"; }, "\"10 ms\"",
       "`limits.progress` is 10 ms; allowed: 1 s to 3650 days"},
      {[](auto& t) { t.rest = "[limits]\nrun = \"10 min\"\n"; }, "run", "unknown key `limits.run`"},
      // Wrong types.
      {[](auto& t) { t.top = "name = 3\n"; }, "3\n", "`name` must be a string, not an integer"},
      {[](auto& t) { t.architecture = "[architecture]\nd_model = \"wide\"\n"; }, "\"wide\"",
       "`architecture.d_model` must be an integer, not a string"},
      {[](auto& t) { t.architecture += "tie_embeddings = 1\n"; }, "1\n[budget]",
       "`architecture.tie_embeddings` must be true or false, not an integer"},
      {[](auto& t) {
         t.top = "name = \"x\"\ndata = 3\n";
         t.data.clear();
       },
       "3\n", "`data` must be a table, not an integer"},
      {[](auto& t) { t.candidates = "[candidate]\nname = \"conventional\"\n"; }, "[candidate]",
       "`candidate` must be a list, not a table"},
      // Impossible ranges and values.
      {[](auto& t) { t.data = "[data]\ntrain = \"t\"\nvalidation = \"v\"\nsequence_length = 0\n"; },
       "0\n[arch", "`data.sequence_length` is 0; allowed: 1 to 16777216"},
      {[](auto& t) { t.architecture += "kv_heads = 0\n"; }, "0\n[budget]",
       "`kv_heads` is 0; allowed: 1 to 16384"},
      {[](auto& t) { t.train += "optimizer.lr = -1.0\n"; }, "-1.0",
       "`train.optimizer.lr` is -1; allowed: 1e-12 to 100"},
      {[](auto& t) { t.train += "optimizer.lr = nan\n"; }, "nan",
       "`train.optimizer.lr` is nan; allowed:"},
      {[](auto& t) { t.space = "[space]\nlayers = { min = 8, max = 4 }\n"; }, "{ min = 8",
       "`space.layers` has min 8 above max 4"},
      {[](auto& t) { t.space = "[space]\nlayers = { min = 0, max = 4 }\n"; }, "0, max",
       "`layers` is 0; allowed: 1 to 4096"},
      {[](auto& t) { t.space = "[space]\nlayers = { min = 1, max = 4, step = 0 }\n"; },
       "0 }\n[train", "`space.layers.step` is 0; allowed: above 0"},
      {[](auto& t) { t.space = "[space]\nlayers = { min = 1 }\n"; }, "{ min = 1 }",
       "`space.layers` needs `min` and `max`"},
      {[](auto& t) { t.space = "[space]\nlayers = 3\n"; }, "3\n[train",
       "`space.layers` must be a list of values or a range"},
      {[](auto& t) { t.space = "[space]\nlayers = []\n"; }, "[]", "`layers` has no values"},
      {[](auto& t) { t.space = "[space]\nfamily = { min = 1, max = 2 }\n"; }, "{ min = 1",
       "`space.family` cannot have a range; allowed: a list"},
      {[](auto& t) { t.space = "[space]\n\"ffn.k\" = [1, \"two\"]\n"; }, "\"two\"",
       "`space.\"ffn.k\"[1]` must be an integer"},
      {[](auto& t) { t.space = "[space]\n\"train.optimizer.lr\" = { min = 0.1, max = 1.0 }\n"; },
       "{ min = 0.1",
       "`space.train.optimizer.lr` is continuous and cannot be in a grid; allowed: a `step`, a "
       "list"},
      {[](auto& t) { t.space = "[space]\nd_h_ratio = [0.4]\n"; }, "[0.4]",
       "`space.d_h_ratio` is solved from the budget; allowed: a range"},
      {[](auto& t) { t.space = "[space]\n"; }, "[space]", "[space] has no axis"},
      {[](auto& t) { t.space = "[space]\n\"train.batch\" = [1024, 1000]\n"; }, "1000]",
       "`train.batch`: 1000 tokens are no whole number of sequences; allowed: multiples of "
       "sequence_length = 128"},
      // The recipe.
      {[](auto& t) { t.train = "[train]\ntokens = \"many\"\nbatch = 1024\n"; }, "\"many\"",
       "`train.tokens`: \"many\" does not start with a number"},
      {[](auto& t) { t.train = "[train]\ntokens = \"-2 per parameter\"\nbatch = 1024\n"; },
       "\"-2 per", "`train.tokens`: \"-2 per parameter\" is no budget; allowed:"},
      {[](auto& t) { t.train = "[train]\ntokens = 0\nbatch = 1024\n"; }, "0\nbatch",
       "`train.tokens`: 0 tokens are too few"},
      {[](auto& t) { t.train = "[train]\nbatch = 1024\n"; }, "[train]",
       "`train.tokens` is missing"},
      {[](auto& t) { t.train = "[train]\ntokens = 5\n"; }, "[train]", "`train.batch` is missing"},
      {[](auto& t) { t.train = "[train]\ntokens = 5\nbatch = 100\n"; }, "100\n",
       "`train.batch`: 100 tokens are no whole number of sequences"},
      {[](auto& t) { t.train += "micro_batch = 100\n"; }, "[train]",
       "`train.micro_batch` is 100 tokens; allowed: at least one sequence of 128"},
      {[](auto& t) { t.train += "checkpoint_every = \"10 parsecs\"\n"; }, "\"10 parsecs\"",
       "`train.checkpoint_every`: \"10 parsecs\" has an unknown unit"},
      {[](auto& t) { t.train += "schedule.warmup = \"100 %\"\n"; }, "\"100 %\"",
       "`train.schedule.warmup`: \"100 %\" is no warm-up; allowed:"},
      {[](auto& t) { t.train += "optimizer.betas = [0.9]\n"; }, "[0.9]",
       "`train.optimizer.betas` must have two numbers"},
      {[](auto& t) { t.train += "optimizer.betas = [0.9, 1]\n"; }, "1]",
       "`train.optimizer.beta2` is 1; allowed: 0 to 0.999999999"},
      {[](auto& t) { t.train += "optimizer = { betas = [0.9, 0.5], beta1 = 0.3 }\n"; }, "0.3",
       "`train.optimizer.beta1` is set twice"},
      {[](auto& t) { t.train += "precision = \"bf61\"\n"; }, "\"bf61\"",
       "`train.precision` is \"bf61\" (did you mean \"bf16\"?); allowed: f32, bf16"},
      {[](auto& t) { t.train += "optimizer.lr_mode = \"mu\"\n"; }, "\"mu\"",
       "`train.optimizer.lr_mode` is \"mu\" (did you mean \"mup\"?); allowed: fixed, step_law, "
       "mup"},
      {[](auto& t) { t.train += "optimizer = { lr = 0.1, lr_mode = \"step_law\" }\n"; }, "[train]",
       "`train.optimizer.lr` is given, but `lr_mode` = \"step_law\" sets it; leave one out"},
      {[](auto& t) { t.train += "optimizer.mup_base_width = 0\n"; }, "0\n",
       "`train.optimizer.mup_base_width` is 0; allowed: 1 to 262144"},
      {[](auto& t) { t.train += "schedule.decay = 1.5\n"; }, "1.5",
       "`train.schedule.decay` is 1.5; allowed:"},
      {[](auto& t) { t.train += "schedule.decay_shape = \"sqrt\"\n"; }, "\"sqrt\"",
       "`train.schedule.decay_shape` is \"sqrt\""},
      {[](auto& t) { t.train += "dn_init = \"fanin\"\n"; }, "\"fanin\"",
       "`train.dn_init` is \"fanin\" (did you mean \"fan_in\"?); allowed: fixed, fan_in"},
      {[](auto& t) { t.train += "z_loss = -1e-5\n"; }, "-1e-5",
       "`train.z_loss` is -1e-05; allowed: 0 to 1"},
      {[](auto& t) { t.train += "recompute = 1\n"; }, "1\n",
       "`train.recompute` must be true or false"},
      {[](auto& t) { t.train += "keep_last = 0\n"; }, "0\n",
       "`train.keep_last` is 0; allowed: 1 to 1000"},
      {[](auto& t) { t.train += "nan_skip_limit = -1\n"; }, "-1",
       "`train.nan_skip_limit` is -1; allowed: 0 to 1000000"},
      // Budgets.
      {[](auto& t) { t.budget = "[budget]\ncounts = \"body\"\n"; }, "[budget]",
       "`budget.parameters` is missing"},
      {[](auto& t) { t.budget = "[budget]\nparameters = -5\n"; }, "-5",
       "`budget.parameters` is -5; allowed: 1 to 1e12"},
      {[](auto& t) { t.budget = "[budget]\nparameters = \"113M\"\n"; }, "\"113M\"",
       "`budget.parameters` is \"113M\"; allowed: an integer, \"same as baseline\" or, with "
       "[[scaling.size]], \"of each size\""},
      {[](auto& t) {
         t.top = "name = \"x\"\n";
         t.budget = "[budget]\nparameters = \"same as baseline\"\n";
       },
       "\"same as", "`budget.parameters` is \"same as baseline\" but there is no `baseline`"},
      {[](auto& t) { t.budget += "solve_for = \"depth\"\n"; }, "\"depth\"",
       "`budget.solve_for` is \"depth\"; allowed: d_h, layers, d_model"},
      {[](auto& t) { t.budget += "solve_for = \"layers\"\nattention = \"fixed\"\n"; }, "\"fixed\"",
       "`budget.attention` = \"fixed\" contradicts solve_for = \"layers\""},
      // A named candidate that cannot meet the budget: at its name, with by how many parameters.
      {[](auto& t) { t.budget = "[budget]\nparameters = 1_048_577\n"; },
       "\"conventional\"\n[[candidate]]",
       "candidate \"conventional\" misses the budget of 1,048,577 parameters (body) by 1 too few"},
      {[](auto& t) { t.budget = "[budget]\nparameters = 200_000\n"; },
       "\"conventional\"\n[[candidate]]",
       "candidate \"conventional\" misses the budget of 200,000 parameters (body) by 63,680 too "
       "many"},
      {[](auto& t) { t.candidates += "[[candidate]]\nname = \"wide\"\nffn.d_h = 600\n"; },
       "\"wide\"",
       "candidate \"wide\" misses the budget of 1,048,576 parameters (body) by 135,168 too many"},
      {[](auto& t) { t.candidates += "[[candidate]]\nname = \"odd\"\nd_model = 100\n"; }, "\"odd\"",
       "candidate \"odd\" `d_model` is 100; allowed: multiples of `head_dim` = 32"},
      // Names.
      {[](auto& t) { t.top = "baseline = \"conventional\"\n"; }, "^", "`name` is missing"},
      {[](auto& t) { t.top = "name = \"a b\"\n"; }, "\"a b\"",
       "`name` is \"a b\"; allowed: 1 to 100 letters"},
      {[](auto& t) { t.top = "name = \"s12\"\n"; }, "\"s12\"",
       "`name` is \"s12\", which reads like an id"},
      {[](auto& t) { t.top = "name = \"last\"\n"; }, "\"last\"",
       "`name` is \"last\", which reads like an id"},
      {[](auto& t) { t.candidates += "[[candidate]]\nname = \"hourglass\"\nlayers = 2\n"; },
       "\"hourglass\"\nlayers", "two candidates are named \"hourglass\""},
      {[](auto& t) { t.candidates += "[[candidate]]\nlayers = 2\n"; }, "[[candidate]]\nlayers",
       "`name` of this [[candidate]] is missing"},
      {[](auto& t) { t.candidates += "[[candidate]]\nname = \" \"\n"; }, "\" \"",
       "a candidate's `name` must have 1 to 200 printable"},
      {[](auto& t) { t.candidates += "[[candidate]]\nname = \"a\\u009b2J\"\n"; }, "\"a\\u009b2J\"",
       "a candidate's `name` must have 1 to 200 printable"},
      {[](auto& t) { t.top = "name = \"x\"\nbaseline = \"conventionel\"\n"; }, "\"conventionel\"",
       "`baseline` is \"conventionel\" (did you mean \"conventional\"?); allowed: conventional, "
       "hourglass"},
      {[](auto& t) {
         t.candidates.clear();
         t.space = "[space]\nlayers = [4]\n";
       },
       "\"conventional\"", "`baseline` is \"conventional\", but there is no [[candidate]]"},
      {[](auto& t) {
         t.top = "name = \"x\"\n";
         t.candidates.clear();
       },
       "^", "there is nothing to train"},
      // Sections that are missing or later.
      {[](auto& t) { t.data.clear(); }, "^", "[data] is missing"},
      {[](auto& t) { t.architecture.clear(); }, "^", "[architecture] is missing"},
      {[](auto& t) { t.train.clear(); }, "^", "[train] is missing"},
      {[](auto& t) { t.data = "[data]\ntrain = \"t\"\nsequence_length = 128\n"; }, "[data]",
       "`data.validation` is missing"},
      {[](auto& t) {
         t.data = "[data]\ntrain = \"t,\"\nvalidation = \"v\"\nsequence_length = 128\n";
       },
       "\"t,\"", "`data.train` has an empty path"},
      {[](auto& t) { t.rest = "[early_stopping]\nkind = \"asha\"\n"; }, "\"asha\"",
       "`early_stopping.kind` is \"asha\"; allowed: none"},
      {[](auto& t) {
         t.candidates += "schedule = { kind = \"geometry\", from = \"conventional\" }\n";
       },
       "\"hourglass\"\nffn",
       "candidate \"hourglass\": `schedule.geometry` is missing: schedule.kind = \"geometry\" "
       "needs "
       "it"},
      {[](auto& t) {
         t.space = "[space]\nlayers = [4]\n";
         t.rest = "[search]\nalgorithm = \"tpa\"\n";
       },
       "\"tpa\"", "`search.algorithm` is \"tpa\""},
      {[](auto& t) {
         t.space = "[space]\nlayers = [4]\n";
         t.rest = "[search]\nalgorithm = \"random\"\n";
       },
       "[search]", "`search.trials` (candidates to draw, at least 1) is missing"},
      {[](auto& t) { t.rest = "[search]\nalgorithm = \"grid\"\n"; }, "[search]",
       "[search] stands without a [space]"},
      {[](auto& t) { t.rest = "[evaluate]\ntasks = { piqa = \"p\" }\n"; }, "tasks",
       "unknown key `evaluate.tasks`; allowed here: perplexity, geometry"},
      {[](auto& t) { t.rest = "[evaluate]\nperplexity = false\n"; }, "false",
       "`evaluate.perplexity` is false"},
      {[](auto& t) { t.rest = "[evaluate]\ngeometry = { layers = \"some\" }\n"; }, "\"some\"",
       "`evaluate.geometry.layers` is \"some\"; allowed: \"all\" or a list"},
      {[](auto& t) { t.rest = "[evaluate]\ngeometry = { rho = 1.0 }\n"; }, "1.0",
       "`evaluate.geometry.rho` is 1; allowed:"},
      {[](auto& t) { t.rest = "[evaluate]\ngeometry = { layers = [4] }\n"; },
       "\"conventional\"\n[[candidate]]",
       "candidate \"conventional\" has 4 layers, but `evaluate.geometry.layers` names layer 4"},
      {[](auto& t) { t.top += "objectives = [\"tokens_per_second:max\"]\n"; }, "\"tokens_per",
       "`objectives[0]` is \"tokens_per_second:max\"; allowed: validation_loss"},
      {[](auto& t) { t.top += "objectives = []\n"; }, "[]", "`objectives` must name one objective"},
      {[](auto& t) { t.rest = "[resources]\ngpus = 257\n"; }, "257\n",
       "`resources.gpus` is 257; allowed: 0 to 256"},
      {[](auto& t) { t.rest = "[retry]\noomm = 1\n"; }, "oomm",
       "unknown key `retry.oomm` (did you mean `oom`?)"},
      {[](auto& t) { t.rest = "[retry]\noom = -1\n"; }, "-1", "`retry.oom` is -1; allowed: 0 to"},
      // Seeds.
      {[](auto& t) { t.rest = "[seeds]\n"; }, "[seeds]", "[seeds] needs `count` or `list`"},
      {[](auto& t) { t.rest = "[seeds]\ncount = 0\n"; }, "0\n",
       "`seeds.count` is 0; allowed: 1 to 1000"},
      {[](auto& t) { t.rest = "[seeds]\nlist = []\n"; }, "[]",
       "`seeds.list` has 0 seeds; allowed: 1 to 1000"},
      {[](auto& t) { t.rest = "[seeds]\nlist = [1, 2, 1]\n"; }, "1]\n", "`seeds.list` has 1 twice"},
      {[](auto& t) { t.rest = "[seeds]\nlist = [-1]\n"; }, "-1",
       "`seeds.list[0]` is -1; allowed: 0 and above"},
      // Constraints.
      {[](auto& t) { t.space = "[space]\nlayers = [4]\nconstraints = [\"d_model <\"]\n"; },
       "\"d_model <\"",
       "`space.constraints[0]`: \"d_model <\" at character 10: a number, a name or '(' is missing"},
      {[](auto& t) { t.space = "[space]\nlayers = [4]\nconstraints = [\"d_modl < 3\"]\n"; },
       "\"d_modl < 3\"",
       "`space.constraints[0]`: \"d_modl < 3\" at character 1: unknown name `d_modl` (did you mean "
       "\"d_model\"?)"},
      {[](auto& t) { t.space = "[space]\nlayers = [4]\nconstraints = [3]\n"; }, "3]",
       "`space.constraints[0]` must be a string"},
      // TOML itself.
      {[](auto& t) { t.top += "x = @1\n"; }, "@1", ""},
  };
  for (const BadInput& c : cases) {
    SweepText text;
    c.spoil(text);
    const auto spec = text.parse();
    ASSERT_FALSE(spec.has_value()) << c.message;
    EXPECT_EQ(spec.error().code(), Code::kInvalidArgument) << spec.error().to_string();
    EXPECT_THAT(spec.error().message(),
                StartsWith("s.toml:" + place(text.text(), c.at) + ": " + c.message))
        << c.message;
  }
}

TEST(Parse, AFileAboveTheLimitIsRefusedHereSoThatPlanAndSubmitAgree) {
  const std::string text = SweepText().text();
  const std::string comment = "\n#";
  const std::size_t room = kSweepFileBytesMax - text.size() - comment.size();
  EXPECT_TRUE(parse(text + comment + std::string(room, 'x'), "s.toml", "/base").has_value());
  const auto larger = parse(text + comment + std::string(room + 1, 'x'), "s.toml", "/base");
  ASSERT_FALSE(larger.has_value());
  EXPECT_EQ(larger.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(larger.error().message(), HasSubstr("at most 4194304"));
}

TEST(Parse, ThereIsASpecOrAnErrorForEveryPrefixOfAFile) {
  SweepText text;
  text.space = "[space]\nlayers = [4]\nconstraints = [\"1 <= layers\"]\n";
  text.rest = "[seeds]\ncount = 3\n";
  const std::string whole = text.text();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto spec = parse(std::string_view(whole).substr(0, size), "s.toml", "/base");
    if (!spec) {
      EXPECT_EQ(spec.error().code(), Code::kInvalidArgument);
      EXPECT_THAT(spec.error().message(), StartsWith("s.toml:"));
    }
  }
}

TEST(Parse, ANameThatReadsLikeAnIdIsRefusedForNewSweepsAndReadInStoredOnes) {
  const auto with_name = [](const std::string& name, Origin origin) {
    SweepText text;
    text.top = "name = \"" + name + "\"\nbaseline = \"conventional\"\n";
    return parse(text.text(), "s.toml", "/base", origin);
  };
  for (const char* name : {"t1", "T1", "s3", "S03", "w2", "W2", "a4", "A4", "7", "007", "t41.2",
                           "t1234567890123456789012345", "last", "Last", "LAST"}) {
    const auto spec = with_name(name, Origin::kSubmitted);
    ASSERT_FALSE(spec.has_value()) << name;
    EXPECT_EQ(spec.error().code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(spec.error().message(), HasSubstr("reads like an id")) << name;
    EXPECT_TRUE(with_name(name, Origin::kStored).has_value()) << name;
  }
  for (const char* name : {"t", "t1x", "tt1", "v2", "run-1", "t_1", "t-1", "t1.", "t1.x", "1e5",
                           "1-2", "lasting", "0x1", "t.1"}) {
    EXPECT_TRUE(with_name(name, Origin::kSubmitted).has_value()) << name;
  }
}

TEST(Parse, PatternsAndListsAreTheValuesAndNeverTheFolders) {
  SweepText text;
  text.data =
      "[data]\ntrain = \"./d/t-*.tokens, /abs/[u].tokens,../w\\\\,x.tokens\"\nvalidation = "
      "\"v?.tokens\"\nsequence_length = 128\n";
  const auto in = [&](const std::string& folder) {
    return parse(text.text(), "s.toml", folder).value().data;
  };
  EXPECT_EQ(in("/runs/lr=0.1,k=4").train,
            R"(/runs/lr=0.1\,k=4/d/t-*.tokens,/abs/[u].tokens,/runs/lr=0.1\,k=4/../w\,x.tokens)");
  EXPECT_EQ(in("/runs/k=[4]").validation, R"(/runs/k=\[4\]/v?.tokens)");
  EXPECT_EQ(in(R"(/a*b?\c)").validation, R"(/a\*b\?\\c/v?.tokens)");
  EXPECT_EQ(in("/ sp ace {a,b}").validation, R"(/ sp ace {a\,b}/v?.tokens)");
  EXPECT_EQ(in("/").validation, "/v?.tokens");
}

}  // namespace
}  // namespace tailor::sweep
