// The coordinator's HTTP pages: JSON under /api/v1, /metrics, /healthz, /readyz and the embedded
// dashboard. docs: the JSON is stable; keys are only added. Times are Unix milliseconds (0 = not
// yet); NaN and infinities are null.
// The routes: routes.cc.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "coordinator/engine/views.h"
#include "coordinator/http/metrics.h"
#include "coordinator/http/server.h"

namespace tailor::http {

/// Threads: any number; may block for a short read. `views` and `metrics` must outlive it.
class Api {
 public:
  /// `accepting` says whether the other port takes connections (ok), else why not; may be empty.
  Api(const engine::Views& views, Metrics& metrics, std::string version,
      std::function<Status()> accepting = {});
  /// Answers everything; never throws for a bad request.
  Response handle(const Request& request) const;
  /// True for what never waits for a read or for the engine: health and the embedded pages
  /// (`Options::quick`).
  static bool is_quick(std::string_view path);

 private:
  Response route(const Request& request) const;
  const engine::Views& views_;
  Metrics& metrics_;
  const std::string version_;
  const std::function<Status()> accepting_;
};

}  // namespace tailor::http
