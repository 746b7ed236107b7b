// Reports that an earlier attempt wrote and nobody stored.
//
// A checkpoint outlives the worker that would have sent the reports before it: killed with its
// worker, an attempt leaves points of the curve in its folder that the coordinator has not seen,
// and an attempt that goes on from its checkpoint never makes them again. So the resuming trainer
// reports them as its own, before it says that it has started. What the coordinator had already is
// told twice, by two attempts; curves are joined from the last attempt back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "protocol/report.h"

namespace tailor::trainer {

/// The metric and checkpoint reports up to `step` in the folder of the attempt that `checkpoint`
/// (ATTEMPT/checkpoints/NNN) belongs to, behind the last one that its worker knew to be stored
/// (worker.json, worker-done.json). Empty when that folder is `directory` itself, or has no
/// reports, or was no worker's (run by hand).
/// Errors: the file cannot be read; a damaged line ends the reading there, with what is before it.
Result<std::vector<protocol::Report>> reports_to_carry(const std::string& directory,
                                                       const std::string& checkpoint,
                                                       std::int64_t step);

}  // namespace tailor::trainer
