// What a match of two clouds costs (gromov_wasserstein.h), beside its value.
//
//   E = min over matchings of the mean square difference of distances, value = sqrt(E)
//
// E of the identity is what it costs to keep every token's place, and min E is at least each of
// the bounds; a search that meets one of them is certified. All are squared distances.
#pragma once

#include <cstddef>
#include <optional>

namespace tailor::geometry {

struct WorkEnergies {
  double energy = 0;      ///< E of the best match that was found
  double identity = 0;    ///< E(identity), at least `energy`
  double norm_bound = 0;  ///< lower bounds of min E; not above `energy`
  double second_bound = 0;
  double third_bound = 0;
  std::size_t certified = 0;  ///< of how many subsamples the value is proved to be the least
  friend bool operator==(const WorkEnergies&, const WorkEnergies&) = default;

  /// E(identity) / E: 1 where no other match is better. None of E = 0 with another identity.
  std::optional<double> identity_ratio() const {
    if (energy > 0) return identity / energy;
    if (identity == 0) return 1;
    return std::nullopt;
  }
};

}  // namespace tailor::geometry
