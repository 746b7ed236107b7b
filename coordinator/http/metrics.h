// Metrics: what Prometheus scrapes. Counters are fed by hooks,
// gauges are read from the engine when scraped.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/engine/views.h"
#include "storage/records.h"

namespace tailor::http {

/// Names and labels are listed in metrics.cc. Threads: any.
class Metrics {
 public:
  /// `database` "" = no file to measure.
  Metrics(std::string version, std::string database, WallMs started_ms);
  ~Metrics();

  /// Hooks.
  void on_commit(std::span<const storage::Mutation> batch, double seconds);
  void on_rpc(std::string_view method, Code code);
  void on_http(int status);

  /// The text exposition format 0.0.4. While commits fail, gauges of live state keep their last
  /// values and tailor_storage_stalled is 1.
  std::string text(const engine::Views& views);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::http
