// Report: one thing a trainer says about its trial, as plain values.
//
// A trainer appends one report a line to DIR/reports.jsonl (protobuf JSON of tailor.v1.Report). The
// sequence number counts from 1 within the attempt without gaps; the coordinator stores each
// exactly once whatever is resent. A torn last line is no report.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "protocol/outcome.h"

namespace tailor::protocol {

/// The trainer is up and knows what it will do.
struct StartedReport {
  std::int64_t pid = 0;
  std::string host;
  std::string device;             ///< "cpu", or the GPU's name
  std::string version;            ///< Tailor's version and commit
  std::string data_hash;          ///< SHA-256 over the manifests of the token shards
  std::int64_t resumed_step = 0;  ///< 0 = from scratch
  std::string resumed_from;       ///< checkpoint folder, "" = from scratch
  std::int64_t parameters_body = 0;
  std::int64_t parameters_total = 0;
  std::int64_t steps_total = 0;
  friend bool operator==(const StartedReport&, const StartedReport&) = default;
};

/// Values at one optimiser step, by metric name: "train_loss", "validation_loss", "lr",
/// "grad_norm", "tokens_per_s". NaN and infinities are ordinary values.
struct MetricReport {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  ///< tokens consumed so far
  std::map<std::string, double> values;
};

/// A checkpoint is complete, synced and renamed to its final name.
struct CheckpointReport {
  std::int64_t step = 0;
  std::string path;    ///< folder
  std::string sha256;  ///< of its manifest
  std::int64_t bytes = 0;
  friend bool operator==(const CheckpointReport&, const CheckpointReport&) = default;
};

/// One statistic of one layer in one geometry.
struct WorkEntry {
  std::int32_t layer = 0;       ///< 0-based
  std::int32_t sub_block = -1;  ///< -1 = the whole FFN sub-block of the layer
  std::string geometry;         ///< "raw" | "spherical" | "hyperbolic"
  std::string statistic;        ///< a name of geometry/statistics/table.cc: "shift", ...
  double value = 0;             ///< mean over subsamples, or over all positions
  std::optional<double> standard_error = {};   ///< none where it cannot be known
  std::string no_error = {};                   ///< why there is none
  std::vector<double> subsample_values = {};   ///< one a subsample, or none where they are too many
  std::optional<MatchEnergies> energies = {};  ///< of "gromov"
};

/// Why a profile of a trainer of an earlier version has no errors.
inline constexpr std::string_view kEarlierErrors =
    "measured by an earlier version, whose subsamples could overlap or share sequences";

/// The work profile measured on the trained network.
struct ProfileReport {
  std::int64_t step = 0;
  std::int32_t tokens = 0;      ///< n
  std::int32_t subsamples = 0;  ///< R' that were used
  double rho = 0;
  std::uint64_t seed = 0;             ///< positions follow from it
  std::int32_t dropped = 0;           ///< tokens dropped as zero vectors
  std::int32_t linear_tokens = 0;     ///< n of the statistics that are linear in n
  std::int32_t subsamples_asked = 0;  ///< R
  /// N, tokens that could be used. 0: of an earlier version; its errors are left out on reading.
  std::int64_t positions = 0;
  std::int64_t sequences = 0;                  ///< that these are of
  bool sequences_given = false;                ///< else each token was taken as one
  std::string no_error;                        ///< why the subsamples give no errors; "" = they do
  std::vector<std::int64_t> subsample_tokens;  ///< of the statistics that are linear in n
  std::vector<WorkEntry> entries;
  /// Why there are no entries; "" = there are. The trial is trained and completes all the same.
  std::string failure = {};
  std::string dimension_failure =
      {};  ///< why the dimensions that were asked for are not among them
};

/// The last report of an attempt.
struct EndReport {
  EndClass end = EndClass::kCompleted;
  std::string message;  ///< for a person: what, to what, what to do
  std::int64_t step = 0;
  std::map<std::string, double> values;  ///< final metrics; "validation_loss" is the objective
};

struct Report {
  std::uint64_t sequence = 0;  ///< from 1, no gaps, within the attempt
  WallMs wall_ms = 0;
  std::variant<StartedReport, MetricReport, CheckpointReport, ProfileReport, EndReport> body;
  /// Why the body could not be read (one of another version, say), "" = it was. Such a report is
  /// refused by `check_report`.
  std::string unreadable = "";
};

/// The trainer's exit codes, one a class, so that a lost report does not lose the reason.
enum class TrainerExit : int {
  kCompleted = 0,
  kInternal = 1,
  kUsage = 2,
  kData = 3,
  kOom = 4,
  kNan = 5,
  kStopped = 6,
  kInfrastructure = 7,
  kLostRank = 8,  ///< another rank of the trial was lost; the report says which, how, and the class
};

/// The class that an exit code stands for when no EndReport was written;
/// kInfrastructure for others.
EndClass end_class_of_exit(int exit_code);

}  // namespace tailor::protocol
