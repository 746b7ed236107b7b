// The coordinator's HTTP pages: JSON under /api/v1, /metrics, /healthz, /readyz and the embedded
// dashboard. docs: the JSON is stable; keys are only added. Times are Unix milliseconds (0 = not
// yet); NaN and infinities are null.
// The routes: routes.cc.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/engine/views.h"
#include "coordinator/http/metrics.h"
#include "coordinator/http/server.h"

namespace tailor::http {

/// Threads: any number; may block for a short read. `views` and `metrics` must outlive it.
class Api {
 public:
  Api(const engine::Views& views, Metrics& metrics, std::string version);
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
};

}  // namespace tailor::http
