// run_trial: one trial from its spec to its end, saying what happens through an observer.
//
// Order: check the spec (trial_check.cc); open the data (trial_data.h); build the network; resume
// from the newest checkpoint that verifies, or initialise; train, with metrics, evaluations and
// checkpoints on the way; then a last checkpoint, the validation loss, the exported weights and the
// work profile. Checkpoints are written beside the training (checkpoint_writer.h) and reported once
// they are on disk and verified.
//
// Several ranks run the same trial together (ranks/group.h): each trains on its share of every
// batch and scores its share of the validation data; rank 0 finds the checkpoint to resume from and
// gives the others what it holds, and alone reports and writes files.
//
// The same spec gives the same weights bit for bit on one machine, stopped and resumed or not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/status.h"
#include "model/kernels/graph.h"
#include "model/net/decoder.h"
#include "model/train/ranks/group.h"
#include "protocol/report.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

/// Any report but the last.
using ProgressReport = std::variant<protocol::StartedReport, protocol::MetricReport,
                                    protocol::CheckpointReport, protocol::ProfileReport>;

/// How a trial talks to whoever runs it. Called from the training thread.
class TrialObserver {
 public:
  virtual ~TrialObserver() = default;
  /// Records a report. A failure (disk full) ends the trial as infrastructure.
  virtual Status report(ProgressReport report) = 0;
  /// Asked between steps and between batches of an evaluation: why the trial must stop, if it must.
  virtual std::optional<std::string> stop_reason() = 0;
  /// Called before step `step` (from 0) with the network: for probes, and for tests that damage it.
  virtual void before_step(std::int64_t step, net::Decoder& decoder) {
    static_cast<void>(step);
    static_cast<void>(decoder);
  }
};

/// What is known of an earlier run of the same trial directory.
struct EarlierRun {
  std::optional<protocol::TrialSpec> spec;  ///< unset: not recorded
  bool completed = false;
  std::string changes;  ///< how the spec of now differs from it, for people; "" = in nothing
};

/// Where a trial keeps its files. Folders are made when missing.
struct TrialPaths {
  std::string checkpoints;
  std::string artifacts;
  /// Of an earlier run in this place. Its checkpoints are gone on from where that is sound: when it
  /// was the same trial, or differs in `train.tokens` only, up to the last step whose learning rate
  /// does not depend on the number of steps. Where it is not, the trial ends as kUser instead of
  /// starting over beside them.
  std::optional<EarlierRun> earlier = std::nullopt;
};

/// What goes into the StartedReport beside what the trial knows.
struct TrialHost {
  std::int64_t pid = 0;
  std::string host;
  std::string device_name;  ///< "cpu", or the GPU's name
  std::string version;
  /// Makes CUDA graphs: steps are recorded and replayed. Empty: they run one kernel at a time.
  std::function<std::unique_ptr<kernels::Graph>()> make_graph;
};

/// Ok, or kInvalidArgument naming the field of the spec, its value and what is allowed.
Status validate_trial(const protocol::TrialSpec& spec);

/// False when the newest whole checkpoint in `folder` is of another trial than `spec` with the data
/// of that hash; true when there is none.
bool newest_is_of(const std::string& folder, const protocol::TrialSpec& spec,
                  const std::string& data_hash);

/// Runs to an end of any class; never throws on bad input. What LibTorch throws (out of memory, a
/// lost device) is let through to the caller, as is ranks::GroupLost. `device` must be usable.
/// Every rank of `group` calls it with the same spec (but for machines: paths, threads, device).
protocol::EndReport run_trial(const protocol::TrialSpec& spec, at::Device device,
                              const TrialHost& host, const TrialPaths& paths,
                              TrialObserver& observer, const Clock& clock, ranks::Group& group);
/// The same by one process.
protocol::EndReport run_trial(const protocol::TrialSpec& spec, at::Device device,
                              const TrialHost& host, const TrialPaths& paths,
                              TrialObserver& observer, const Clock& clock);

}  // namespace tailor::train
