// The intrinsic dimension of what enters each layer (or sub-MLP), as entries of its work profile:
// "two_nn" and "levina_bickel" in the raw geometry (science.md 4.5), on all positions of the
// clouds. Their errors are not known (NaN): the estimators give none for tokens that are not
// independent.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "model/train/clouds.h"
#include "protocol/report.h"

namespace tailor::train {

/// Two entries a cloud, in their order. Errors: those of geometry::intrinsic_dimension, with the
/// layer; kInvalidArgument for NaN and infinity.
Result<std::vector<protocol::WorkEntry>> cloud_dimensions(std::span<const LayerRows> clouds,
                                                          std::size_t d_model, std::uint64_t seed,
                                                          int threads);

}  // namespace tailor::train
