// The coordinator's HTTP pages: JSON under /api/v1, /metrics, /healthz, /readyz and the embedded
// dashboard. docs: the JSON is stable; keys are only added. Times are Unix milliseconds (0 = not
// yet); NaN and infinities are null.
//
//   /api/v1/sweeps                          every sweep with its trials by state
//   /api/v1/sweeps/REF?offset=&limit=       one sweep (name, id or "last"), a page of its
//                                           candidates, its file
//   /api/v1/trials?sweep=&state=&offset=&limit=&order=&descending=
//   /api/v1/trials/ID                       one trial: candidate, attempts, checkpoints, metrics,
//                                           profile
//   /api/v1/trials/ID/log?attempt=&offset=&bytes=     without offset: the end of it
//   /api/v1/trials/ID/why                   what it waits for, in a sentence
//   /api/v1/series?trial=&metric=&points=   thinned to about so many points (500; at most 10,000)
//   /api/v1/compare?sweep=&baseline=&objective=
//   /api/v1/workers
//   /api/v1/events?after=&limit=&sweep=&trial=        or tail=N: the last N of all
#pragma once

#include <string>

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

 private:
  Response route(const Request& request) const;
  Response api(std::string_view path, const Request& request) const;
  const engine::Views& views_;
  Metrics& metrics_;
  const std::string version_;
};

}  // namespace tailor::http
