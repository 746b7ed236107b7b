#include "coordinator/search/history.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tailor::search {
namespace {

/// Adds `values` to a mean over `count` of them, NaN where one is missing.
void add_to_mean(std::vector<double>& mean, const std::vector<double>& values, int count) {
  const std::size_t old = mean.size();
  mean.resize(std::max(old, values.size()), count == 1 ? 0.0 : std::nan(""));
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const double value = i < values.size() ? values[i] : std::nan("");
    mean[i] += (value - mean[i]) / count;
  }
}

bool any_finite(const std::vector<double>& values) {
  return !values.empty() && std::isfinite(values.front());
}

}  // namespace

Judged judge(const Record& record) {
  Judged out;
  bool failed = false, stopped = false, running = record.seeds.empty();
  int completed = 0;
  for (const SeedRun& seed : record.seeds) {
    switch (seed.fate) {
      case Fate::kRunning:
        running = true;
        break;
      case Fate::kCompleted:
        if (!any_finite(seed.values)) {
          failed = true;
        } else {
          add_to_mean(out.values, seed.values, ++completed);
        }
        break;
      case Fate::kStopped:
        stopped = true;
        break;
      case Fate::kFailed:
        failed = true;
        break;
      case Fate::kInfeasible:
        out.fate = Fate::kInfeasible;
        return out;
      case Fate::kLost:
        break;
    }
  }
  if (running) {
    out.values.clear();
    return out;
  }
  out.fate = failed          ? Fate::kFailed
             : stopped       ? Fate::kStopped
             : completed > 0 ? Fate::kCompleted
                             : Fate::kLost;
  if (out.fate == Fate::kFailed) out.values.clear();
  if (out.fate != Fate::kStopped) return out;
  // The furthest rung that all stopped seeds have in common would be fairest; most have one seed.
  out.values.clear();
  double sum = 0;
  int count = 0;
  for (const SeedRun& seed : record.seeds) {
    if (seed.fate != Fate::kStopped || seed.rungs.empty()) continue;
    const Rung& last = seed.rungs.back();
    out.tokens = count == 0 ? last.tokens : std::min(out.tokens, last.tokens);
    sum += last.value;
    ++count;
  }
  if (count == 0 || !std::isfinite(sum)) {
    out.fate = Fate::kFailed;  // stopped without any value: nothing but bad is known
    return out;
  }
  out.values = {sum / count};
  return out;
}

bool History::counts(const Entry& entry) const {
  return !entry.record.given && !entry.record.same_as && entry.judged.fate != Fate::kInfeasible;
}

std::size_t History::add(Record record) {
  Entry entry;
  entry.judged = judge(record);
  if (auto x = space_->encode(record.point)) entry.x = *std::move(x);
  entry.record = std::move(record);
  if (entry.record.hash.empty()) entry.record.hash = key_of(entry.record.point);
  counted_ += counts(entry);
  proposals_ += !entry.record.given;
  by_hash_.emplace(entry.record.hash, entries_.size());
  ++version_;
  entries_.push_back(std::move(entry));
  return entries_.size() - 1;
}

std::optional<std::size_t> History::find(const std::string& hash) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  return found->second;
}

void History::set(std::size_t index, std::vector<SeedRun> seeds) {
  TAILOR_CHECK(index < entries_.size(), "index={}", index);
  Entry& entry = entries_[index];
  counted_ -= counts(entry);
  entry.record.seeds = std::move(seeds);
  entry.judged = judge(entry.record);
  counted_ += counts(entry);
  ++version_;
}

}  // namespace tailor::search
