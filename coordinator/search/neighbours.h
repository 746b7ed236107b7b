// Small changes of a point: what evolution mutates with and what climbs an acquisition. Pure.
#pragma once

#include "coordinator/search/space.h"

namespace tailor::search {

/// One axis changed: an ordered one by one cell (or, once in four times, by up to a tenth of its
/// range), a continuous one by a normal step of `scale`, a choice to another. Axes that are not
/// active do not count. Snapped; axes that became active are drawn. Equal to `x` only where no axis
/// can change.
Coordinates mutate_one(const Space& space, const Coordinates& x, double scale, Rng& rng);

/// Two ordered axes, one a cell up and one a cell down: width for depth, as shapes of one budget
/// trade it. As `mutate_one` where there are no two.
Coordinates trade(const Space& space, const Coordinates& x, double scale, Rng& rng);

/// Every numeric axis moved by a normal step of `scale` (ordered ones by at least half a cell, now
/// and
/// then), each choice redrawn with probability `scale`.
Coordinates jitter(const Space& space, const Coordinates& x, double scale, Rng& rng);

/// Each axis from either parent.
Coordinates cross(const Space& space, const Coordinates& a, const Coordinates& b, Rng& rng);

}  // namespace tailor::search
