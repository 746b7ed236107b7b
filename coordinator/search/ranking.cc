#include "coordinator/search/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace tailor::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double or_infinite(double value) { return std::isnan(value) ? kInfinity : value; }

/// REQUIRES: every point lies below the reference in each of its `m` first costs.
double volume(std::vector<std::vector<double>> points, std::span<const double> reference,
              std::size_t m) {
  if (points.empty()) return 0;
  if (m == 1) {
    double best = kInfinity;
    for (const auto& point : points) best = std::min(best, point[0]);
    return reference[0] - best;
  }
  std::sort(points.begin(), points.end(),
            [&](const auto& a, const auto& b) { return a[m - 1] < b[m - 1]; });
  if (m == 2) {
    double total = 0, lowest = reference[0];
    for (std::size_t i = 0; i < points.size(); ++i) {
      lowest = std::min(lowest, points[i][0]);
      const double next = i + 1 < points.size() ? points[i + 1][1] : reference[1];
      total += (reference[0] - lowest) * (next - points[i][1]);
    }
    return total;
  }
  double total = 0;
  std::vector<std::vector<double>> front;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::span<const double> here(points[i].data(), m - 1);
    const auto covers = [&](const std::vector<double>& other, std::span<const double> one) {
      for (std::size_t k = 0; k + 1 < m; ++k) {
        if (other[k] > one[k]) return false;
      }
      return true;
    };
    const bool covered =
        std::any_of(front.begin(), front.end(), [&](const auto& p) { return covers(p, here); });
    if (!covered) {
      std::erase_if(front, [&](const auto& p) { return covers(points[i], {p.data(), m - 1}); });
      front.push_back(points[i]);
    }
    const double next = i + 1 < points.size() ? points[i + 1][m - 1] : reference[m - 1];
    const double height = next - points[i][m - 1];
    if (height > 0) total += height * volume(front, reference, m - 1);
  }
  return total;
}

}  // namespace

double cost(const Judged& judged, const Settings& settings, std::size_t index) {
  if (index >= judged.values.size()) return std::nan("");
  const double value = judged.values[index];
  return index < settings.objectives.size() && settings.objectives[index].maximise ? -value : value;
}

std::vector<double> costs_of(const Judged& judged, const Settings& settings) {
  std::vector<double> out;
  for (std::size_t i = 0; i < settings.objectives.size(); ++i) {
    out.push_back(cost(judged, settings, i));
  }
  return out;
}

double excess(const Judged& judged, const Settings& settings) {
  double out = 0;
  for (std::size_t i = 0; i < settings.limits.size(); ++i) {
    const Limit& limit = settings.limits[i];
    const std::size_t at = settings.objectives.size() + i;
    if (at >= judged.values.size() || std::isnan(judged.values[at])) return kInfinity;
    const double over =
        limit.at_least ? limit.bound - judged.values[at] : judged.values[at] - limit.bound;
    out += std::max(0.0, over) / std::max(std::abs(limit.bound), 1e-12);
  }
  return out;
}

bool dominates(std::span<const double> a, std::span<const double> b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = or_infinite(a[i]), y = or_infinite(b[i]);
    if (x > y) return false;
    better = better || x < y;
  }
  return better;
}

std::vector<std::vector<std::size_t>> sorted_fronts(const std::vector<std::vector<double>>& costs) {
  const std::size_t n = costs.size();
  std::vector<std::size_t> dominated_by(n, 0);
  std::vector<std::vector<std::size_t>> below(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      if (dominates(costs[i], costs[j])) {
        below[i].push_back(j);
        ++dominated_by[j];
      } else if (dominates(costs[j], costs[i])) {
        below[j].push_back(i);
        ++dominated_by[i];
      }
    }
  }
  std::vector<std::vector<std::size_t>> fronts;
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < n; ++i) {
    if (dominated_by[i] == 0) front.push_back(i);
  }
  while (!front.empty()) {
    std::vector<std::size_t> next;
    for (const std::size_t i : front) {
      for (const std::size_t j : below[i]) {
        if (--dominated_by[j] == 0) next.push_back(j);
      }
    }
    std::sort(next.begin(), next.end());
    fronts.push_back(std::move(front));
    front = std::move(next);
  }
  return fronts;
}

std::vector<double> crowding(const std::vector<std::vector<double>>& costs,
                             std::span<const std::size_t> front) {
  std::vector<double> out(front.size(), 0.0);
  if (front.empty()) return out;
  std::vector<std::size_t> order(front.size());
  for (std::size_t m = 0; m < costs[front[0]].size(); ++m) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto at = [&](std::size_t i) { return or_infinite(costs[front[i]][m]); };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return at(a) < at(b); });
    const double low = at(order.front()), high = at(order.back());
    out[order.front()] = out[order.back()] = kInfinity;
    if (!(high > low) || std::isinf(high)) continue;
    for (std::size_t i = 1; i + 1 < order.size(); ++i) {
      out[order[i]] += (at(order[i + 1]) - at(order[i - 1])) / (high - low);
    }
  }
  return out;
}

double hypervolume(std::vector<std::vector<double>> costs, std::span<const double> reference) {
  TAILOR_CHECK(!reference.empty(), "no reference");
  std::erase_if(costs, [&](const auto& point) {
    TAILOR_CHECK(point.size() == reference.size(), "{} costs", point.size());
    for (std::size_t i = 0; i < reference.size(); ++i) {
      if (!(point[i] < reference[i])) return true;
    }
    return false;
  });
  return volume(std::move(costs), reference, reference.size());
}

std::vector<RankedRecord> ranked(const History& history, const Settings& settings) {
  struct Item {
    RankedRecord record;
    double first = 0, second = 0;
  };
  std::vector<Item> items;
  std::vector<std::size_t> good;
  for (std::size_t i = 0; i < history.size(); ++i) {
    const Judged& judged = history.judged(i);
    if (history.coordinates(i).empty() || history.record(i).same_as) continue;
    switch (judged.fate) {
      case Fate::kCompleted:
        if (const double over = excess(judged, settings); over > 0) {
          items.push_back({{i, Standing::kOver}, over, 0});
        } else {
          good.push_back(items.size());
          items.push_back({{i, Standing::kGood}, cost(judged, settings, 0), 0});
        }
        break;
      case Fate::kStopped:
        items.push_back({{i, Standing::kStopped},
                         -static_cast<double>(judged.tokens),
                         cost(judged, settings, 0)});
        break;
      case Fate::kFailed:
        items.push_back({{i, Standing::kFailed}, 0, 0});
        break;
      case Fate::kRunning:
      case Fate::kInfeasible:
      case Fate::kLost:
        break;
    }
  }
  if (settings.objectives.size() > 1) {
    std::vector<std::vector<double>> costs;
    for (const std::size_t i : good) {
      costs.push_back(costs_of(history.judged(items[i].record.index), settings));
    }
    const auto fronts = sorted_fronts(costs);
    for (std::size_t rank = 0; rank < fronts.size(); ++rank) {
      const std::vector<double> room = crowding(costs, fronts[rank]);
      for (std::size_t k = 0; k < fronts[rank].size(); ++k) {
        Item& item = items[good[fronts[rank][k]]];
        item.first = static_cast<double>(rank);
        item.second = -room[k];
      }
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::tie(a.record.standing, a.first, a.second, a.record.index) <
           std::tie(b.record.standing, b.first, b.second, b.record.index);
  });
  std::vector<RankedRecord> out;
  out.reserve(items.size());
  for (const Item& item : items) out.push_back(item.record);
  return out;
}

std::vector<std::size_t> running(const History& history) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (history.judged(i).fate != Fate::kRunning || history.coordinates(i).empty()) continue;
    if (!history.record(i).same_as) out.push_back(i);
  }
  return out;
}

}  // namespace tailor::search
