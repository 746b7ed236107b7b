// `tailor-trainer run`: one trial from its directory, by one process or as one of several ranks.
#pragma once

#include <cstdint>
#include <string>

namespace tailor::trainer {

struct RunOptions {
  std::string directory;
  /// Which of how many; -1 with `ranks` > 1: this process is rank 0 and starts the others here.
  int rank = -1;
  int ranks = 1;
  /// HOST:PORT of rank 0; REQUIRED with a rank. Rank 0 may give port 0: DIR/rendezvous then has the
  /// one that it listens on.
  std::string rendezvous;
  int local_rank = -1;  ///< which of this machine's ranks: its GPU is that far behind the spec's
  /// With a rank: so many ranks from it on run on this machine; this process starts the others.
  int local_ranks = 1;
  double lost_after_s = 10;
  std::string log_level = "info";
};

/// Runs to the end and returns the exit code (protocol/report.h). Installs handlers for SIGTERM and
/// SIGINT. Rank 0 alone writes into the directory, the log
/// apart; the first rank of each machine looks at the lease in its own.
int run(const RunOptions& options);

}  // namespace tailor::trainer
