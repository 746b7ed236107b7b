// Rungs in tokens, and one rung as the rules read it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/scheduler/early_stopping/rule.h"

namespace tailor::scheduler {

/// More rungs than this are a mistake in the file.
inline constexpr std::size_t kRungsMax = 1'000;

/// The rungs of a trial of `tokens`, ascending, all below `tokens`:
///   median          first, 2 first, 3 first, ...
///   all others      first, eta first, eta^2 first, ...
/// At most kRungsMax. Empty for kind "none". REQUIRES: first > 0, reduction >= 2.
std::vector<std::int64_t> rungs_of(std::string_view kind, std::int64_t first,
                                   std::uint32_t reduction, std::int64_t tokens);

/// `value` is finite, and so comparable.
bool is_comparable(double value);

/// The units of one rung, best first: lower values, then earlier units; what is not finite last.
struct RungList {
  std::vector<std::uint32_t> order;  ///< not exempt, by rank
  std::size_t finite = 0;            ///< the first so many have finite values
  /// Units that may still reach the rung, at most; nullopt = without bound.
  std::optional<std::uint64_t> may_come;

  bool closed() const { return may_come && *may_come == 0; }
  /// Places of the rung when `size` units are there: floor(size / eta), at least one.
  static std::uint64_t places(std::uint64_t size, std::uint32_t reduction);
  /// Places it can have at most, whatever comes; nullopt = without bound.
  std::optional<std::uint64_t> places_max(std::uint32_t reduction) const;
};

/// Of the units `members` (places in the field) at `rung`. Units that begin above the rung are not
/// among `members`. `to_come`: units that may join `members`.
RungList rung_list(const Field& field, std::span<const std::uint32_t> members, std::uint32_t rung,
                   std::optional<std::uint64_t> to_come);

/// Successive halving over `members`, which are judged at rungs from `begin` on; decisions are
/// added to `out`, which is by unit then. `eager`: units go on as soon as they are among the best
/// 1/eta so far (ASHA), else when the rung is closed.
void halve(const Field& field, std::span<const std::uint32_t> members, std::uint32_t begin,
           const RuleSettings& settings, std::optional<std::uint64_t> to_come, bool eager,
           std::vector<Decision>& out);
/// The rule that does so with all units of a sweep, from rung 0 on.
std::unique_ptr<Rule> make_halving_of_all(const RuleSettings& settings, bool eager);

}  // namespace tailor::scheduler
