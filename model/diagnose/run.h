// A whole diagnosis of one network: measured piece by piece, kept in a folder, resumed after a
// kill, written as JSON, SQLite and HTML.
//
//   FOLDER/diagnosis.json     docs/diagnose.md
//   FOLDER/diagnosis.db       the same as tables
//   FOLDER/report.html        the same as a page
//   FOLDER/pieces/            what is finished (pieces.h)
//   FOLDER/pieces/clouds/     layer_NNN_{before,after}.f32 while layers are measured; with
//                             keep_clouds FOLDER/clouds/*.npy and positions.json for other programs
//
// The results are a function of network, sequences and settings: neither threads nor memory nor
// how often the run was killed change a byte of them (on one device).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/distance.h"
#include "model/diagnose/network.h"
#include "model/diagnose/sensitivity.h"

namespace tailor::diagnose {

/// Defaults are science.md's where it has them; docs/diagnose.md argues the others.
struct Settings {
  std::size_t tokens = 256;    ///< n of a subsample
  std::size_t subsamples = 8;  ///< R
  std::size_t tokens_per_sequence = 4;
  std::int64_t length = 128;  ///< tokens of a sequence that clouds are taken from

  std::int64_t probe_sequences = 8;
  std::int64_t probe_length = 64;
  std::int64_t scored = 32;  ///< the last so many tokens of each: those with context
  ProbeOptions probes;

  double rho = geometry::kDefaultRho;
  std::uint64_t seed = 0;  ///< of positions, noise, subsets and permutations
  std::size_t permutations = 10'000;

  int threads = 1;           ///< changes no result
  bool keep_clouds = false;  ///< changes no result

  Status validate() const;
  /// Sequences that clouds want: R subsamples of whole sequences.
  std::size_t cloud_sequences() const;
};

/// Ids; all of one length each.
struct Sequences {
  std::vector<std::vector<std::int64_t>> clouds;  ///< settings.length tokens each
  std::vector<std::vector<std::int64_t>> probes;  ///< settings.probe_length tokens each
};

/// How far it is, in floating-point operations; `what` is for people.
using ShowProgress = std::function<void(double done, double total, std::string_view what)>;

/// Diagnoses. `about` goes into the result: "model" and "data", which also say (with the settings
/// and the tokens) whether finished pieces are of this run. Errors: kInvalidArgument for settings;
/// kOutOfRange for a clean loss or a stream that is not finite; those of network and files. This is
/// the function for a sweep's stage as well.
Result<nlohmann::ordered_json> diagnose(ProbeNetwork& network, const Sequences& sequences,
                                        const Settings& settings,
                                        const nlohmann::ordered_json& about,
                                        const std::string& folder,
                                        const ShowProgress& progress = {});

}  // namespace tailor::diagnose
