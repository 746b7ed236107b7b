// TrialSpec: everything a trainer needs to run one trial, as plain values.
//
// The coordinator builds it from a sweep, the worker writes it into the trial directory as
// `spec.json` (protobuf JSON of tailor.v1.TrialSpec), the trainer reads it. A trial is reproducible
// from this value: shape, recipe, seed, data with its content hash. protocol/convert.h maps it to
// and from proto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/shape/architecture.h"

namespace tailor::protocol {

/// Token files. Paths are absolute or relative to the trainer's working folder; shell patterns and
/// comma-separated lists are allowed, a backslash makes the character after it stand for itself.
struct DataSpec {
  std::string train;       ///< token shards, "…/train-*.tokens"
  std::string validation;  ///< token shards for the validation loss
  std::int32_t sequence_length = 0;
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

/// Where the peak learning rate of a tensor comes from.
enum class LrMode {
  kFixed,    ///< `lr` for all
  kStepLaw,  ///< as kFixed; the sweep has set `lr` to 1.79 N^-0.713 D^0.307 (arXiv 2503.04715)
  kMup,      ///< muP (arXiv 2203.03466): hidden matrices learn at lr * mup_base_width / fan-in
};

/// AdamW (Loshchilov and Hutter) with decoupled decay on matrices only.
struct OptimizerSpec {
  double lr = 3e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< global L2 norm of the gradient; 0 switches clipping off
  LrMode lr_mode = LrMode::kFixed;
  std::int64_t mup_base_width = 256;  ///< fan-in at which `lr` and `init_std` hold as they stand
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

enum class LrScheduleKind { kCosine, kConstant, kWsd };
/// How a warm-up-stable-decay schedule comes down.
enum class DecayShape { kLinear, kOneMinusSqrt };

struct LrScheduleSpec {
  LrScheduleKind kind = LrScheduleKind::kCosine;
  double warmup_fraction = 0.01;                 ///< share of all steps, in [0, 1)
  std::int64_t warmup_steps = -1;                ///< overrides the fraction when >= 0
  double final_fraction = 0.1;                   ///< final lr / peak lr
  double decay_fraction = 0.2;                   ///< kWsd: share of all steps that decay, in (0, 1]
  DecayShape decay_shape = DecayShape::kLinear;  ///< kWsd
  friend bool operator==(const LrScheduleSpec&, const LrScheduleSpec&) = default;
};

enum class Precision { kF32, kBf16 };

/// Standard deviation of an FFN's down projection at the start, before residual scaling.
enum class DownInit {
  kFixed,  ///< init_std
  kFanIn,  ///< 1 / sqrt(hidden width)
};

struct TrainSpec {
  std::int64_t tokens = 0;  ///< training budget in tokens; rounded up to whole steps
  /// Tokens of one optimiser step; a multiple of sequence_length.
  std::int64_t batch_tokens = 0;
  std::int64_t micro_batch_tokens = 0;  ///< tokens of one forward; 0 = the whole batch
  OptimizerSpec optimizer;
  LrScheduleSpec schedule;
  Precision precision = Precision::kF32;
  std::int64_t log_every_steps = 10;       ///< one metric point every so many steps
  std::int64_t evaluate_every_tokens = 0;  ///< 0 = only at the end
  std::int64_t checkpoint_every_ms = 600'000;
  std::int64_t validation_tokens = 0;  ///< upper limit of an evaluation; 0 = all of the shards
  /// Residual writes are scaled by 1/sqrt(L(1+K)) (our default).
  double init_std = 0.02;
  DownInit down_init = DownInit::kFixed;
  double z_loss = 0;                ///< weight of log^2 Z in the training loss; 0 = off
  bool recompute = false;           ///< keep only the inputs of layers for the backward pass
  std::int32_t keep_last = 2;       ///< checkpoints kept, the newest; >= 1
  bool keep_best = false;           ///< also save and keep the one with the lowest validation loss
  std::int32_t nan_skip_limit = 0;  ///< steps that are not finite and are left out, at most
  friend bool operator==(const TrainSpec&, const TrainSpec&) = default;
};

/// What is measured at the end of a trial.
struct GeometrySpec {
  bool enabled = false;
  std::vector<std::int32_t> layers;  ///< empty = every layer
  std::int32_t tokens = 256;         ///< cloud size n
  std::int32_t subsamples = 8;       ///< R
  /// tanh(1), our default; the papers' radius is not published to us.
  double rho = 0.7615941559557649;
  bool sub_blocks = false;  ///< also the clouds around each sub-MLP of a stack
  bool dimension = false;   ///< also the intrinsic dimension of what enters each of them
  friend bool operator==(const GeometrySpec&, const GeometrySpec&) = default;
};

struct TrialSpec {
  TrialId trial;
  std::uint32_t attempt = 0;
  FencingToken token = 0;
  std::string sweep_name;
  std::string candidate_name;
  std::uint64_t seed = 0;  ///< the pair id: same seed = same data order and initial values
  shape::Architecture architecture;
  DataSpec data;
  TrainSpec train;
  GeometrySpec geometry;
  std::string device = "cpu";  ///< "cpu" or "cuda:0"; set by the worker
  std::int32_t threads = 1;    ///< CPU threads the trainer may use; set by the worker
  /// Folders that may hold checkpoints of earlier attempts of this trial
  /// (`…/<attempt>/checkpoints`); the newest that verifies is resumed from. Set by the worker.
  std::vector<std::string> resume_from;
  friend bool operator==(const TrialSpec&, const TrialSpec&) = default;
};

}  // namespace tailor::protocol
