#include "tests/simulation/users.h"

#include <fmt/format.h>

#include "sweep/spec.h"

namespace tailor::simulation {
namespace {

constexpr const char* kCommon = R"(
objectives = ["validation_loss"]
[data]
train = "train.tokens"
validation = "validation.tokens"
sequence_length = 16
[architecture]
family = "llama"
d_model = 32
layers = 2
head_dim = 16
vocab_size = 256
ffn = { kind = "swiglu", d_h = 64 }
[train]
tokens = 1024
batch = 64
)";

// Named candidates, two of them equal; a grid with infeasible points and one
// that repeats a named candidate.
constexpr const char* kGrid = R"(
[[candidate]]
name = "plain"
[[candidate]]
name = "wide"
"ffn.d_h" = 160
[[candidate]]
name = "wide too"
"ffn.d_h" = 160
[space]
"ffn.d_h" = [64, 96, 128, 160]
"layers" = [1, 2, 4]
constraints = ["layers <= 2"]
[search]
algorithm = "grid"
[seeds]
count = 2
[retry]
oom = 2
node_lost = 50
lease_lost = 50
)";

constexpr const char* kRandom = R"(
[space]
"ffn.d_h" = { min = 32, max = 256, step = 1 }
"train.optimizer.lr" = { min = 1e-4, max = 1e-2, log = true }
[seeds]
count = 1
)";

// Pairs of nodes train one trial together.
constexpr const char* kGang = R"(
[[candidate]]
name = "plain"
[[candidate]]
name = "wide"
"ffn.d_h" = 160
[seeds]
count = 2
[resources]
nodes = 3
nodes_min = 2
priority = 1
[limits]
progress = "90 s"
trial = "3 h"
[retry]
oom = 50
infrastructure = 50
timeout = 50
node_lost = 50
lease_lost = 50
preempted = 1000
)";

// Stages: widths that are cut from the measurement of another trial, one of them twice, and one
// whose reference is not in the file.
constexpr const char* kStaged = R"(
[[candidate]]
name = "uniform"
[[candidate]]
name = "shaped"
schedule = { kind = "geometry", geometry = "hyperbolic", statistic = "topology" }
[[candidate]]
name = "anti"
schedule.kind = "geometry"
schedule.geometry = "hyperbolic"
schedule.statistic = "topology"
schedule.control = "mirrored"
[[candidate]]
name = "again"
schedule.kind = "geometry"
schedule.geometry = "hyperbolic"
schedule.statistic = "topology"
schedule.iterate = 2
schedule.sigma = 0.5
[[candidate]]
name = "wide"
"ffn.d_h" = 96
schedule = { kind = "geometry", geometry = "hyperbolic", statistic = "topology", seed = 2 }
[seeds]
count = 2
[retry]
oom = 2
node_lost = 50
lease_lost = 50
)";

}  // namespace

void Users::begin() {
  files_.push_back({std::string("name = \"grid-sweep\"\n") + kCommon + kGrid, "grid-sweep"});
  const int trials = c_.faults.random_trials;
  const std::string limits =
      fmt::format("[search]\nalgorithm = \"random\"\ntrials = {}\nseed = 3\n{}", trials,
                  trials > 100 ? "" : "[resources]\nparallel = 2\n");
  files_.push_back(
      {std::string("name = \"random-sweep\"\n") + kCommon + kRandom + limits, "random-sweep"});
  files_.push_back({std::string("name = \"gang-sweep\"\n") + kCommon + kGang, "gang-sweep"});
  files_.push_back({std::string("name = \"staged-sweep\"\n") + kCommon + kStaged, "staged-sweep"});
  files_.push_back({std::string("name = \"staged-again\"\n") + kCommon + kStaged, "staged-again"});
  submit(0);
  c_.after(c_.up_to(10'000), [this] { submit(3); });
  c_.after(c_.up_to(90'000), [this] { submit(4); });
  c_.after(c_.up_to(20'000), [this] { submit(1); });
  // A gang needs nodes that there are.
  if (c_.faults.nodes > 1) c_.after(c_.up_to(60'000), [this] { submit(2); });
}

void Users::submit(std::size_t which) {
  if (coordinator_up()) {
    const File& file = files_[which];
    const auto spec = sweep::parse(file.text, file.name + ".toml", "/data");
    if (!spec) return c_.fail("the sweep file does not parse: " + spec.error().message());
    const core::RequestId request = ask();
    submissions_[request] = which;
    post(core::SubmitSweep{request, std::make_shared<const sweep::Spec>(*spec), file.text, "/data",
                           sweep::spec_hash(file.text, "/data")});
  }
  c_.after(5'000, [this, which] {
    if (!ids_.contains(which) || c_.chance(0.1)) submit(which);
  });
}

void Users::on_reply(const core::Reply& reply) {
  if (open_.erase(reply.request) == 0) {
    return c_.fail(fmt::format("request {} was answered twice, or never asked", reply.request));
  }
  const auto submission = submissions_.find(reply.request);
  if (submission == submissions_.end()) return;
  if (!reply.status.is_ok())
    return c_.fail("a submission was refused: " + reply.status.to_string());
  const SweepId id = std::get<core::SubmitOutcome>(reply.body).sweep;
  const auto [known, is_new] = ids_.emplace(submission->second, id);
  if (known->second != id) c_.fail("the same file was given two ids");
}

void Users::act(std::size_t workers) {
  if (!coordinator_up() || ids_.empty()) return;
  const SweepId sweep{1 + c_.rng.below(5)};
  const TrialId trial{1 + c_.rng.below(60)};
  c_.count("request");
  const WorkerId worker{1 + c_.rng.below(workers)};
  switch (c_.rng.below(17)) {
    case 0:
    case 1:
    case 2:
      return post(core::ControlSweep{ask(), sweep, core::SweepAction::kPause, 0});
    case 3:
    case 4:
    case 5:
      return post(core::ControlSweep{ask(), sweep, core::SweepAction::kResume, 0});
    case 6:
      if (c_.chance(0.1)) post(core::ControlSweep{ask(), sweep, core::SweepAction::kCancel, 0});
      return;
    case 7:
    case 8:
    case 12:
      return post(core::ControlTrials{ask(), {trial}, {}, core::TrialAction::kCancel, false});
    case 9:
      ledger_.allow_retry(sweep);
      return post(core::ControlTrials{ask(), {}, sweep, core::TrialAction::kRetry, false});
    case 10:
      return post(core::DrainWorker{ask(), worker, c_.chance(0.5) ? 0 : c_.up_to(10'000)});
    case 13:
      quarantined_.insert(worker);
      return post(core::QuarantineWorker{ask(), worker, "as a test"});
    case 14:
      return post(core::ReleaseWorker{ask(), worker});
    case 15:
    case 16:
      return post(core::ControlTrials{ask(),
                                      {trial},
                                      {},
                                      core::TrialAction::kSetPriority,
                                      false,
                                      static_cast<std::int32_t>(c_.rng.below(4))});
    default:
      return post(core::ControlSweep{ask(), sweep, core::SweepAction::kSetPriority,
                                     static_cast<std::int32_t>(c_.rng.below(3))});
  }
}

void Users::resume_all() {
  if (!coordinator_up()) return;
  for (const auto& [which, id] : ids_)
    post(core::ControlSweep{ask(), id, core::SweepAction::kResume, 0});
  // Only what people did: a quarantine for troubles ends by itself.
  for (const WorkerId worker : quarantined_) post(core::ReleaseWorker{ask(), worker});
}

}  // namespace tailor::simulation
