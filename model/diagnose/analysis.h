// From measurements to what is reported: profiles with errors, correlations, front-load index,
// scale sensitivity, additivity. science.md 5.1; forms that the paper does not give are ours and
// named so in docs/diagnose.md.
//
// Errors are the jackknife of the whole computation: over subsamples of tokens for what comes from
// clouds, over sequences and draws for what comes from probes, and all three for correlations of
// the two (the sequences of clouds and of probes are different ones, so squares add). What is not
// defined is null with its reason.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/status.h"
#include "model/diagnose/measurement.h"
#include "model/diagnose/sensitivity.h"
#include "storage/table_file.h"

namespace tailor::diagnose {

struct AnalysisOptions {
  std::uint64_t seed = 0;
  std::size_t permutations = 10'000;
};

/// Version 1 of docs/diagnose.md, without "model", "data" and "settings", which the caller adds.
/// `layers` by depth, each with the subsamples of `sampling`.
nlohmann::ordered_json analyse(const std::vector<LayerMeasurement>& layers,
                               const Sampling& sampling, const Sensitivity& sensitivity,
                               const AnalysisOptions& options);

/// The same as tables, with the loss of every probe on every sequence and the work of every
/// subsample beside them.
std::vector<storage::Table> tables_of(const nlohmann::ordered_json& diagnosis,
                                      const std::vector<LayerMeasurement>& layers,
                                      const ProbeResults& probes);

}  // namespace tailor::diagnose
