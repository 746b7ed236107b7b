// Checkpoints: everything that a trial needs to continue bit for bit.
//
//   CHECKPOINTS/000000120/model.safetensors       fp32 weights under their exported names
//                         optimizer.safetensors   exp_avg.NAME and exp_avg_sq.NAME, fp32
//                         state.json              step, tokens, next sample, whose trial it is
//                         manifest.json           size and SHA-256 of each file
//
// Order of writing: a temporary folder; each file fsynced; the manifest; the folder; rename; the
// parent. So a folder with a number for a name is whole, and what a power cut or a bad disk does to
// it later is found by its hashes. checkpoint_writer.h writes them beside the training
// and removes old ones.
//
// Data order, learning rate and initial values are functions of seed and step, so "next sample" is
// the whole generator state; it counts samples, so a trial may continue with other micro-batches or
// on another number of ranks (equal to rounding; with the same ones, bit for bit).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/net/decoder.h"
#include "model/train/optimizer.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

/// state.json.
struct CheckpointState {
  std::int64_t step = 0;    ///< optimiser steps done
  std::int64_t tokens = 0;  ///< tokens trained on
  std::uint64_t next_sample = 0;
  double train_loss = 0;                       ///< of the last step
  std::int64_t skipped = 0;                    ///< steps left out since they were not finite
  std::optional<double> validation_loss;       ///< of these weights, if they were evaluated
  std::optional<double> best_validation_loss;  ///< the lowest of the trial so far
  std::string identity;  ///< trial_identity(): a checkpoint of another trial is never resumed from
};

/// A checkpoint on disk.
struct CheckpointInfo {
  std::string path;
  std::string manifest_sha256;
  std::int64_t bytes = 0;
  CheckpointState state;
};

/// All that a checkpoint holds, in host memory: training may go on.
struct Snapshot {
  CheckpointState state;
  const net::ParameterSet* parameters = nullptr;  ///< for names and shapes
  at::Tensor weights, m, v;                       ///< fp32 on the CPU, in the order of `parameters`
};

/// Copies weights and moments; on a GPU into page-locked memory, waiting for the device. Errors:
/// kResourceExhausted when there is no host memory for it. `decoder` must outlive the snapshot.
Result<Snapshot> take_snapshot(const CheckpointState& state, const net::Decoder& decoder,
                               AdamW& optimizer);

/// SHA-256 over all that decides the trained weights, but for rounding: shape, recipe, seed, data,
/// type of the products.
std::string trial_identity(const protocol::TrialSpec& spec, const std::string& data_hash);

/// Told of each stage that a checkpoint has reached ("model", "renamed", "removed", ...), from the
/// thread that writes. Tests end the process there.
using CheckpointStage = std::function<void(std::string_view)>;

/// Saves into `folder` (made if missing), reads it back and verifies. A whole checkpoint of the
/// same step and trial that is there already is kept as it is. Errors: kResourceExhausted (disk
/// full), kUnavailable, kDataLoss when it does not read back as written. Threads: uses no LibTorch
/// operator, so any.
Result<CheckpointInfo> write_checkpoint(const std::string& folder, const Snapshot& snapshot,
                                        const CheckpointStage& stage = {});

/// Checkpoint folders in `folder` with their steps, newest first, whole or not; empty when it
/// cannot be read.
std::vector<std::pair<std::int64_t, std::string>> list_checkpoints(const std::string& folder);

/// Removes a checkpoint so that it is never there in part under its name.
void remove_checkpoint(const std::string& path, const CheckpointStage& stage = {});

/// Removes what a crash left in `folder` under temporary names. REQUIRES: nobody writes there.
void remove_leftovers(const std::string& folder);

/// Checks every file of a checkpoint against its manifest.
/// Errors: kNotFound; kDataLoss naming the file that is missing, cut or altered; kUnimplemented for
/// a newer format.
Result<CheckpointInfo> verify_checkpoint(const std::string& path);

/// Told of every checkpoint that cannot be used, with the reason.
using SkippedCheckpoint = std::function<void(const std::string& path, const Status& reason)>;

/// Ok, or why a whole checkpoint is not to be resumed from.
using UsableCheckpoint = std::function<Status(const CheckpointState& state)>;

/// The newest checkpoint in `folders` that verifies and is usable; the earlier folder wins between
/// equal steps. Missing folders are no error.
std::optional<CheckpointInfo> newest_checkpoint(const std::vector<std::string>& folders,
                                                const UsableCheckpoint& usable,
                                                const SkippedCheckpoint& skipped);

/// The newest checkpoint of the trial `identity` in `folders` that verifies; the earlier folder
/// wins between equal steps. Missing folders are no error.
std::optional<CheckpointInfo> newest_checkpoint(const std::vector<std::string>& folders,
                                                const std::string& identity,
                                                const SkippedCheckpoint& skipped);

/// Fills weights and moments. Errors: kDataLoss, as SafetensorsFile and ParameterSet::load.
Status load_checkpoint(const CheckpointInfo& checkpoint, net::Decoder& decoder, AdamW& optimizer);

}  // namespace tailor::train
