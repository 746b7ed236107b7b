// The coordinator under load: one that the bench starts itself in a folder of its own, or one that
// runs already.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/bench/load/measure.h"

namespace tailor::load {

struct Options {
  std::string coordinator;  ///< HOST:PORT of a running one; "" = start one for each figure
  std::string program;      ///< tailor-coordinator to start
  std::string folder;       ///< where databases are made: the disk that is measured
  bool keep = false;        ///< leave the databases there
  std::vector<std::string> coordinator_arguments;  ///< further ones for the program
  double seconds = 10;                             ///< of one figure
};

/// Limits that 20,000 connections need: as many open files as this process may have. They are
/// inherited by what it starts.
std::uint64_t raise_file_limit();

class Coordinator {
 public:
  /// Starts one on free ports of loopback and waits until it serves, or looks at the running one.
  /// `database` "" = a new one. Errors: kUnavailable with the end of its log.
  static Result<std::unique_ptr<Coordinator>> open(const Options& options,
                                                   const std::string& database = "");
  /// Ends what was started and removes its folder unless it is to be kept.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& grpc_address() const { return grpc_; }
  int http_port() const { return http_port_; }
  const std::string& folder() const { return folder_; }
  const std::string& database() const { return database_; }
  /// 0 for one that was not started here: its use of the machine is then not known.
  pid_t pid() const { return pid_; }
  Usage usage() const;

  /// SIGKILL, and gone when it returns.
  void kill();
  /// SIGTERM, and gone when it returns: everything is in the database file.
  void stop();
  /// Starts it again on the same database and ports; the seconds until its port file is written.
  Result<double> start();

 private:
  Coordinator() = default;
  Result<double> spawn();
  void end(int signal);

  std::string program_, folder_, database_, grpc_;
  std::vector<std::string> arguments_;
  int grpc_port_ = 0, http_port_ = 0;
  pid_t pid_ = 0;
  bool keep_ = false;
  bool own_database_ = false;
};

}  // namespace tailor::load
