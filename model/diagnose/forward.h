// The forward passes of diagnostics: clouds around every FFN, and losses under perturbation. Every
// pass goes through the layers once, with all its streams side by side, so a layer that must be
// read from disk is read once a pass.
//
// A pass of probes starts with the clean stream alone; a probe's stream is split off it behind the
// FFN of its first layer. Losses depend on which probes share a pass only by the rounding of
// products of other shapes; passes are planned by settings alone, so a repeated run is equal.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/diagnose/network.h"
#include "model/diagnose/sensitivity.h"

namespace tailor::diagnose {

/// Told now and then that so many rows went through one layer (or the head).
using Told = std::function<void(std::int64_t rows)>;

/// Sequences of equal length that losses are taken on.
struct ScoredTokens {
  at::Tensor tokens_gt;     ///< int64, on the network's device
  at::Tensor targets_gt;    ///< the next token
  std::int64_t scored = 0;  ///< the last so many positions of each sequence
};

struct ProbeLosses {
  std::vector<double> clean;                ///< of each sequence, nats over its scored tokens
  std::vector<std::vector<double>> probes;  ///< [probe][sequence]
};

/// `probes` ordered by first layer, layers in range. `seed`: of the noise. Errors: those of
/// ProbeNetwork::load.
Result<ProbeLosses> run_probes(ProbeNetwork& network, const ScoredTokens& tokens,
                               std::span<const Probe> probes, std::uint64_t seed,
                               const Told& told = {});

/// Streams that a pass of probes holds at most, by memory (2 GiB) and so that a finished pass is
/// a piece worth keeping.
std::size_t probes_per_pass(std::int64_t rows, std::int64_t width);

/// Gets the rows of one layer, (rows, d) fp32, in the order of the sequences.
using CloudSink = std::function<Status(std::int64_t layer, std::span<const float> before,
                                       std::span<const float> after)>;

/// Runs the sequences of `tokens` (equal lengths) and hands out the rows `offsets[s]` of each,
/// layer by layer; for very many sequences in several passes. Errors: those of loading and of the
/// sink.
Status take_cloud_rows(ProbeNetwork& network, const std::vector<std::vector<std::int64_t>>& tokens,
                       const std::vector<std::vector<std::int64_t>>& offsets, const CloudSink& sink,
                       const Told& told = {});

}  // namespace tailor::diagnose
