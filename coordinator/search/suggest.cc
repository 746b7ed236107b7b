// The frame around every algorithm: budget, enqueued points, what is feasible and new, and what
// happens when an algorithm has nothing to offer.
#include "coordinator/search/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "base/text.h"
#include "coordinator/search/proposer.h"
#include "coordinator/search/ranking.h"
#include "sweep/candidate.h"

namespace tailor::search {
namespace {

/// Times that a learning algorithm is asked for others before points are drawn instead.
constexpr std::uint32_t kAttemptsMax = 64;
/// Points in a row that a grid may find infeasible: some seconds of looking.
constexpr std::uint64_t kGridLooksMax = 1'000'000;
/// A space up to so many points is walked to its end before it is said to be used up.
constexpr std::uint64_t kWalkMax = 200'000;
/// Draws of a feasible point that may all be repetitions.
constexpr int kRepeatsInARow = 100;
constexpr std::size_t kReasonsMax = 20;

const AlgorithmEntry* find_algorithm(std::string_view name) {
  for (const AlgorithmEntry& entry : algorithm_table()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

class Suggester {
 public:
  Suggester(const Context& context, const AlgorithmEntry& entry)
      : context_(context),
        entry_(entry),
        counted_(context.history.counted()),
        ordinal_(context.history.proposals()) {}

  Suggestions run(std::size_t count) {
    while (out_.points.size() < count && !out_.done) {
      if (context_.settings.trials > 0 && counted_ >= context_.settings.trials) {
        finish(fmt::format("{} trials were proposed", context_.settings.trials));
      } else {
        one();
      }
    }
    return std::move(out_);
  }

 private:
  void finish(std::string why) {
    out_.done = true;
    out_.why = std::move(why);
  }

  void one() {
    if (enqueued()) return;
    if (!proposer_) proposer_ = entry_.make(context_);
    const bool walks = proposer_->exhausts_space();
    std::uint64_t looks = 0;
    for (std::uint32_t attempt = 0; walks || attempt < kAttemptsMax; ++attempt) {
      const std::vector<sweep::Point> points = proposer_->propose(ordinal_, attempt);
      if (points.empty() && walks) return finish("every point of the space was given");
      if (points.empty()) break;
      for (const sweep::Point& point : points) {
        if (take(point)) return;
        if (walks && ++looks >= kGridLooksMax) {
          return finish(
              fmt::format("{} points in a row are infeasible or repetitions; `tailor plan` "
                          "says why points fail",
                          with_thousands(kGridLooksMax)));
        }
      }
    }
    const std::uint64_t points = context_.space.points();
    if (points > 0 && points <= kWalkMax) return walk(points);
    draw();
  }

  bool enqueued() {
    for (const sweep::Point& point : context_.settings.enqueued) {
      const Look look = context_.space.look(point);
      if (!look.feasible || context_.history.find(look.hash) || taken_.contains(look.hash))
        continue;
      return give(point, look.hash, std::nullopt);
    }
    return false;
  }

  /// The rest of a small space, from a drawn place on.
  void walk(std::uint64_t points) {
    Rng rng = stream(context_, "walk", ordinal_, 0);
    const std::uint64_t start = rng.below(points);
    std::uint64_t stride = 1 + rng.below(points);
    while (std::gcd(stride, points) != 1) ++stride;
    std::uint64_t at = start;
    for (std::uint64_t i = 0; i < points; ++i) {
      const auto point = context_.space.grid_point(at);
      if (point && take(*point)) return;
      at = (at + stride) % points;
    }
    const bool any = context_.history.size() > 0 || !out_.points.empty();
    finish(any ? "every feasible point of the space was given"
               : "the space is empty: none of its points is feasible");
  }

  void draw() {
    Rng rng = stream(context_, "draw", ordinal_, 0);
    for (int i = 0; i < kRepeatsInARow; ++i) {
      const auto x = context_.space.draw_feasible(rng);
      if (!x) {
        return finish(
            "the space is empty or nearly so: no feasible point was found in 2,000 looks; `tailor "
            "plan` says why points fail");
      }
      if (take(context_.space.decode(*x))) return;
    }
    finish(fmt::format("{} feasible points in a row were repetitions: the space is used up",
                       kRepeatsInARow));
  }

  /// True when the point is the suggestion.
  bool take(const sweep::Point& point) {
    Look look = context_.space.look(point);
    if (!look.feasible) {
      ++out_.infeasible;
      std::string kind = sweep::reason_kind(look.reason);
      if (!out_.reasons.contains(kind) && out_.reasons.size() >= kReasonsMax) {
        kind = "another reason";
      }
      ++out_.reasons[kind];
      return false;
    }
    const auto known = context_.history.find(look.hash);
    const bool repeats = known || taken_.contains(look.hash);
    switch (repeats ? context_.settings.duplicates : Duplicates::kReplicate) {
      case Duplicates::kSkip:
        ++out_.duplicates;
        return false;
      case Duplicates::kReuse:
        // The same point again, or one of this very answer, brings nothing.
        if (!known || key_of(context_.history.record(*known).point) == key_of(point) ||
            !reused_.insert(key_of(point)).second || was_reused(point)) {
          ++out_.duplicates;
          return false;
        }
        return give(point, look.hash, known);
      case Duplicates::kReplicate:
        break;
    }
    return give(point, look.hash, std::nullopt);
  }

  bool was_reused(const sweep::Point& point) const {
    for (std::size_t i = 0; i < context_.history.size(); ++i) {
      const Record& record = context_.history.record(i);
      if (record.same_as && record.point == point) return true;
    }
    return false;
  }

  bool give(const sweep::Point& point, const std::string& hash,
            std::optional<std::size_t> same_as) {
    if (proposer_) proposer_->accept(point);
    accepted_.push_back(point);
    taken_.insert(hash);
    out_.points.push_back({point, hash, same_as});
    ++ordinal_;
    counted_ += !same_as;
    return true;
  }

  const Context context_;
  const AlgorithmEntry& entry_;
  std::unique_ptr<Proposer> proposer_;
  std::uint64_t counted_;
  std::uint64_t ordinal_;
  std::unordered_set<std::string> taken_, reused_;
  std::vector<sweep::Point> accepted_;
  Suggestions out_;
};

}  // namespace

Status check(const Space& space, const Settings& settings) {
  const AlgorithmEntry* entry = find_algorithm(settings.algorithm);
  if (entry != nullptr) return entry->check(space, settings);
  return unknown_algorithm(settings.algorithm);
}

Status unknown_algorithm(std::string_view name) {
  const std::vector<std::string_view> names = suggest_names();
  const std::string nearest = nearest_name(name, names);
  return {Code::kInvalidArgument,
          fmt::format("no search algorithm is called '{}'{}; there are: {}", name,
                      nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
                      fmt::join(names, ", "))};
}

Result<Suggestions> suggest(const History& history, const Space& space, const Settings& settings,
                            std::uint64_t seed, std::size_t count) {
  TAILOR_RETURN_IF_ERROR(check(space, settings));
  const Context context{history, space, settings, seed};
  return Suggester(context, *find_algorithm(settings.algorithm)).run(count);
}

std::optional<std::size_t> best_of(const History& history, const Settings& settings) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (history.judged(i).fate != Fate::kCompleted || excess(history.judged(i), settings) > 0) {
      continue;
    }
    if (!best || cost(history.judged(i), settings, 0) < cost(history.judged(*best), settings, 0)) {
      best = i;
    }
  }
  return best;
}

std::vector<std::size_t> pareto_of(const History& history, const Settings& settings) {
  std::vector<std::size_t> kept;
  std::vector<std::vector<double>> costs;
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (history.judged(i).fate != Fate::kCompleted || excess(history.judged(i), settings) > 0) {
      continue;
    }
    kept.push_back(i);
    costs.push_back(costs_of(history.judged(i), settings));
  }
  std::vector<std::size_t> out;
  const std::vector<std::vector<std::size_t>> fronts = sorted_fronts(costs);
  if (fronts.empty()) return out;
  for (const std::size_t i : fronts.front()) {
    const bool finite =
        std::all_of(costs[i].begin(), costs[i].end(), [](double c) { return std::isfinite(c); });
    if (finite) out.push_back(kept[i]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tailor::search
