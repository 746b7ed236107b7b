// Token clouds before and after each FFN sub-block, and the work profile measured on them.
//
// Positions (science.md 3.1): at most 4 tokens of a validation sequence, never position 0, the same
// for every layer and side; which sequences and which positions follows from the seed. The sampling
// unit is the sequence: its block is its name in the profile. One sequence more for each subsample
// is taken than they need, so that a token without a direction costs no subsample.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "geometry/work_profile.h"
#include "model/data/loader.h"
#include "model/net/decoder.h"
#include "model/train/evaluate.h"
#include "protocol/report.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

/// One token of the validation stream: block of the EvaluationLoader and place in it.
struct TokenPosition {
  std::uint64_t block = 0;
  std::int64_t offset = 0;  ///< in [1, T)
  friend bool operator==(const TokenPosition&, const TokenPosition&) = default;
};

/// Up to `count` positions in `full_blocks` blocks of length `sequence_length`,
/// blocks in rising order.
std::vector<TokenPosition> choose_positions(std::uint64_t full_blocks, std::int64_t sequence_length,
                                            std::size_t count, std::uint64_t seed);

/// The rows of the residual stream at chosen positions, one layer or one sub-MLP of it.
struct LayerRows {
  std::int64_t layer = 0;
  int sub_block = -1;         ///< -1: the whole FFN sub-block; else the 0-based sub-MLP
  std::vector<float> before;  ///< entering it, (positions, d)
  std::vector<float> after;   ///< leaving it
};

/// Clouds without rows for `layers` (empty = all), each layer once; with `sub_blocks` those of its
/// sub-MLPs follow. Errors: kInvalidArgument for a layer that is not there.
Result<std::vector<LayerRows>> empty_clouds(const net::DecoderForm& form,
                                            const std::vector<std::int32_t>& layers,
                                            bool sub_blocks);

/// Runs the network over (B, T) int64 tokens and appends to `clouds`, which empty_clouds made, the
/// rows (b T + t) that `rows` (int64) names.
void append_clouds(net::Decoder& decoder, const at::Tensor& tokens_bt, const at::Tensor& rows,
                   std::vector<LayerRows>& clouds);

/// Runs the network over the blocks that `positions` name. `layers` empty = all; with `sub_blocks`
/// the clouds around each sub-MLP follow those of its layer. `rows`: sequences of one forward pass.
/// Errors: those of the loader, kCancelled, kInvalidArgument for a layer that is not there.
Result<std::vector<LayerRows>> take_clouds(net::Decoder& decoder,
                                           const data::EvaluationLoader& loader,
                                           const std::vector<TokenPosition>& positions,
                                           const std::vector<std::int32_t>& layers, bool sub_blocks,
                                           std::int64_t rows, const ShouldStop& should_stop);

/// Clouds and profile as `spec.geometry` asks. The positions are returned for the artifact.
struct MeasuredWork {
  geometry::WorkProfile profile;
  std::vector<TokenPosition> positions;
  std::vector<protocol::WorkEntry> dimensions;  ///< where spec.geometry asks for them
  std::string dimension_failure;                ///< why there are none
};
/// `accelerator`: a device for the geometry, or null; the profile is the same. The caller owns it.
/// Errors: as above and those of geometry::measure_work; kFailedPrecondition when the validation
/// data has no full sequence.
Result<MeasuredWork> measure_trial(net::Decoder& decoder, const data::EvaluationLoader& loader,
                                   const protocol::TrialSpec& spec, std::int64_t rows,
                                   const ShouldStop& should_stop,
                                   const geometry::Accelerator* accelerator = nullptr);

/// Positions that a profile needs, with those to spare.
std::size_t positions_wanted(std::size_t tokens, std::size_t subsamples);

/// The profile as a report; without the values of subsamples where they are too many for one.
protocol::ProfileReport to_report(const MeasuredWork& work, std::int64_t step);

/// The profile with all positions as JSON: DIR/artifacts/work_profile.json.
std::string work_profile_json(const MeasuredWork& work, const protocol::TrialSpec& spec,
                              std::int64_t step);

}  // namespace tailor::train
