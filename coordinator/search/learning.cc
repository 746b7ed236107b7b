// suggest() as an Algorithm: its history is the sweep's candidates. Nothing is saved but how many
// points were proposed and which of them turned out to be none; all else is recalled from rows.
//
// state   := proposals ("\n" number " " hash)*     refused proposals, by their number from 0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "coordinator/search/algorithms.h"
#include "coordinator/search/suggest.h"

namespace tailor::search {
namespace {

class Learning final : public Algorithm {
 public:
  explicit Learning(std::shared_ptr<const sweep::Spec> spec)
      : spec_(std::move(spec)), space_(Space::of(spec_)), history_(space_) {
    settings_.algorithm = spec_->search.algorithm;
    settings_.trials = spec_->search.trials;
    for (std::size_t i = 0; i < spec_->objectives.size(); ++i) {
      if (i >= settings_.objectives.size()) settings_.objectives.emplace_back();
      settings_.objectives[i].name = spec_->objectives[i];
    }
    settings_.objectives.resize(1);  // the objective of a trial is one number
  }

  const Settings& settings() const { return settings_; }
  const Space& space() const { return *space_; }

  bool learns() const override { return true; }
  bool exhausts_space() const override { return false; }

  void recall(std::span<const Recalled> candidates) override {
    recalled_.assign(candidates.begin(), candidates.end());
    rebuild(0, {});
  }

  void update(std::span<const Observation> finished) override {
    for (const Observation& one : finished) {
      const auto found = index_.find(key_of(one.point));
      if (found == index_.end()) continue;  // a candidate of no proposal of ours
      history_.set(found->second, outcome(one.objective));
    }
  }

  std::vector<sweep::Point> suggest(std::size_t count) override {
    std::vector<sweep::Point> points;
    if (done_) return points;
    const auto next = search::suggest(history_, *space_, settings_, spec_->search.seed, count);
    if (!next) {
      done_ = true;
      return points;
    }
    done_ = next->done;
    const bool short_of =
        settings_.trials > 0 && history_.counted() + next->points.size() < settings_.trials;
    if (done_ && short_of) why_ = next->why;
    for (const Suggestion& one : next->points) {
      add({one.point, one.hash});
      points.push_back(one.point);
    }
    return points;
  }

  void refuse() override {
    if (history_.empty()) return;
    const std::size_t last = history_.size() - 1;
    history_.set(last, {{0, Fate::kInfeasible}});
    refused_.emplace(history_.proposals() - 1, history_.record(last).hash);
    done_ = false;
    why_.clear();
  }

  std::optional<std::uint64_t> remaining() const override {
    if (done_) return 0;
    constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
    const std::uint64_t wanted = settings_.trials > 0 ? settings_.trials : kMost;
    std::uint64_t left = wanted - std::min(wanted, history_.counted());
    if (space_->points() > 0) {
      left = std::min(left, space_->points() - std::min(space_->points(), history_.proposals()));
    }
    return left;
  }

  std::string_view why() const override { return why_; }

  std::string save() const override {
    std::string out = std::to_string(history_.proposals());
    for (const auto& [number, hash] : refused_) out += fmt::format("\n{} {}", number, hash);
    return out;
  }

  Status load(std::string_view state) override {
    const auto bad = [&] {
      return Status{Code::kDataLoss,
                    fmt::format("'{}' is no state of this search", state.substr(0, 40))};
    };
    const std::vector<std::string_view> lines = split(state, '\n');
    std::uint64_t proposals = 0;
    if (lines.empty() || !parse_cursor(lines[0], &proposals)) return bad();
    std::map<std::uint64_t, std::string> refused;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const std::size_t blank = lines[i].find(' ');
      std::uint64_t number = 0;
      if (blank == std::string_view::npos || !parse_cursor(lines[i].substr(0, blank), &number) ||
          number >= proposals || blank + 1 == lines[i].size()) {
        return bad();
      }
      if (!refused.emplace(number, lines[i].substr(blank + 1)).second) return bad();
    }
    std::uint64_t proposed = 0;
    for (const Recalled& one : recalled_) proposed += !one.named;
    // A sweep that is only shown was not recalled.
    if (!recalled_.empty() && proposed + refused.size() != proposals) return bad();
    rebuild(proposals, std::move(refused));
    return Status::ok();
  }

 private:
  static std::vector<SeedRun> outcome(const std::optional<double>& objective) {
    if (!objective) return {{0, Fate::kFailed}};
    return {{0, Fate::kCompleted, {*objective}}};
  }

  void add(Record record) {
    index_.insert_or_assign(key_of(record.point), history_.size());
    history_.add(std::move(record));
  }

  /// The history of the recalled candidates with the refused proposals in their places.
  void rebuild(std::uint64_t proposals, std::map<std::uint64_t, std::string> refused) {
    history_ = History(space_);
    index_.clear();
    refused_ = std::move(refused);
    done_ = false;
    auto next = recalled_.begin();
    const auto take = [&](bool named) {
      Record record{next->point, next->hash};
      record.given = named;
      if (next->told) record.seeds = outcome(next->objective);
      add(std::move(record));
      ++next;
    };
    while (next != recalled_.end() && next->named) take(true);
    for (std::uint64_t number = 0; number < proposals || next != recalled_.end(); ++number) {
      if (const auto none = refused_.find(number); none != refused_.end()) {
        history_.add({{}, none->second, {{0, Fate::kInfeasible}}});
      } else if (next != recalled_.end()) {
        take(false);
      } else {
        break;  // not recalled: only shown
      }
    }
  }

  const std::shared_ptr<const sweep::Spec> spec_;
  const std::shared_ptr<const Space> space_;
  Settings settings_;
  History history_;
  std::vector<Recalled> recalled_;
  std::map<std::string, std::size_t> index_;
  std::map<std::uint64_t, std::string> refused_;
  bool done_ = false;
  std::string why_;
};

}  // namespace

Result<std::unique_ptr<Algorithm>> make_learning(const sweep::Spec& spec) {
  auto made = std::make_unique<Learning>(std::make_shared<const sweep::Spec>(spec));
  TAILOR_RETURN_IF_ERROR(check(made->space(), made->settings()));
  return made;
}

}  // namespace tailor::search
