// Checkpoints: everything that a trial needs to continue bit for bit.
//
//   CHECKPOINTS/000000120/model.safetensors       fp32 weights under their exported names
//                         optimizer.safetensors   exp_avg.NAME and exp_avg_sq.NAME, fp32
//                         state.json              step, tokens, next sample, whose trial it is
//                         manifest.json           size and SHA-256 of each file
//
// Order of writing: a temporary folder; each file fsynced; the manifest; the folder; rename; the
// parent. So a folder with a number for a name is whole, and what a power cut or a bad disk does to
// it later is found by its hashes. The newest two are kept; an older one is removed only after the
// newer was read back and verified.
//
// Data order, learning rate and initial values are functions of seed and step, so "next sample" is
// the whole generator state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
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
  double train_loss = 0;  ///< of the last step
  std::string identity;   ///< trial_identity(): a checkpoint of another trial is never resumed from
};

/// A checkpoint on disk.
struct CheckpointInfo {
  std::string path;
  std::string manifest_sha256;
  std::int64_t bytes = 0;
  CheckpointState state;
};

/// SHA-256 over all that decides the trained weights: shape, recipe, seed, data, type of the
/// products.
std::string trial_identity(const protocol::TrialSpec& spec, const std::string& data_hash);

/// Saves into `folder` (made if missing) and removes all but the newest two. A whole checkpoint of
/// the same step and trial that is there already is kept as it is. Errors: kResourceExhausted (disk
/// full), kUnavailable, kDataLoss when it does not read back as written.
Result<CheckpointInfo> save_checkpoint(const std::string& folder, const CheckpointState& state,
                                       const net::Decoder& decoder, AdamW& optimizer);

/// Checks every file of a checkpoint against its manifest.
/// Errors: kNotFound; kDataLoss naming the file that is missing, cut or altered; kUnimplemented for
/// a newer format.
Result<CheckpointInfo> verify_checkpoint(const std::string& path);

/// Told of every checkpoint that cannot be used, with the reason.
using SkippedCheckpoint = std::function<void(const std::string& path, const Status& reason)>;

/// The newest checkpoint of the trial `identity` in `folders` that verifies; the earlier folder
/// wins between equal steps. Missing folders are no error.
std::optional<CheckpointInfo> newest_checkpoint(const std::vector<std::string>& folders,
                                                const std::string& identity,
                                                const SkippedCheckpoint& skipped);

/// Fills weights and moments. Errors: kDataLoss, as SafetensorsFile and ParameterSet::load.
Status load_checkpoint(const CheckpointInfo& checkpoint, net::Decoder& decoder, AdamW& optimizer);

}  // namespace tailor::train
