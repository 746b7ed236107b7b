// Trials cancelled, queued again or given another priority: named ones, or all of a sweep that fit
// a filter. What fits is read from the store, and core is asked in pieces, so that a request for
// 300,000 trials holds up nobody's heartbeat; core decides for each what is in a state for it.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"
#include "protocol/limits.h"

namespace tailor::rpc {
namespace {

constexpr int kNamedTrialsMax = 10'000;
constexpr std::size_t kPiece = 5'000;       // trials of one event that changes them
constexpr std::size_t kDryPiece = 100'000;  // of one that only looks
constexpr std::size_t kNamesShown = 1'000;  // of trials and of sweeps in the answer

using ControlCall = Call<v1::ControlTrialsResponse>;

/// Trials to act on, ascending, and how the last attempt of each ended.
struct Chosen {
  std::vector<TrialId> trials;
  std::set<storage::TrialState> states;  ///< that they must be in; empty = any
  std::unordered_map<std::uint64_t, protocol::EndClass> end_classes;  // by trial, if there is one

  void add(const storage::TrialRow& row) {
    trials.push_back(row.id);
    if (row.end_class) end_classes.emplace(row.id.value, *row.end_class);
  }
};

/// A TrialFilter as it was understood.
struct Filter {
  SweepId sweep;
  std::set<storage::TrialState> states;  // empty = all
  std::set<std::optional<protocol::EndClass>> end_classes;
  std::set<std::uint32_t> candidates;
  std::set<std::uint64_t> seeds;

  bool takes(const storage::TrialRow& row) const {
    const auto in = [](const auto& wanted, const auto& value) {
      return wanted.empty() || wanted.count(value) > 0;
    };
    return in(states, row.state) && in(end_classes, row.end_class) &&
           in(candidates, row.candidate) && in(seeds, row.seed);
  }
};

/// Numbers of the candidates of these names.
Result<std::set<std::uint32_t>> candidates_named(const storage::Store& store, SweepId sweep,
                                                 std::set<std::string> names) {
  std::set<std::uint32_t> numbers;
  std::vector<std::string> known;  // for the message: some of them
  for (std::uint64_t offset = 0; !names.empty(); offset += kPageMax) {
    TAILOR_ASSIGN_OR_RETURN(const auto page, store.candidate_page(sweep, offset, kPageMax));
    for (const auto& row : page.candidates) {
      if (names.erase(row.name) > 0) numbers.insert(row.index);
      if (known.size() < kPageMax) known.push_back(row.name);
    }
    if (page.candidates.size() < kPageMax) break;
  }
  if (names.empty()) return numbers;
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string near = nearest_name(*names.begin(), views);
  return error(Code::kNotFound,
               fmt::format("sweep {} has no candidate \"{}\"{}; nothing was done",
                           sweep.to_string(), short_text(*names.begin()),
                           near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near)));
}

Result<Filter> read_filter(const storage::Store& store, SweepId sweep,
                           const v1::TrialFilter& given) {
  Filter filter;
  filter.sweep = sweep;
  for (const int number : given.states()) {
    TAILOR_ASSIGN_OR_RETURN(const auto state, from_proto(static_cast<v1::TrialState>(number)));
    if (state) filter.states.insert(*state);
  }
  for (const std::string& name : given.end_classes()) {
    TAILOR_ASSIGN_OR_RETURN(const protocol::EndClass end, protocol::parse_end_class(name));
    filter.end_classes.insert(end);
  }
  filter.seeds.insert(given.seeds().begin(), given.seeds().end());
  if (given.candidates_size() > 0) {
    TAILOR_ASSIGN_OR_RETURN(
        filter.candidates,
        candidates_named(store, sweep, {given.candidates().begin(), given.candidates().end()}));
  }
  return filter;
}

Result<Chosen> choose(const storage::Store& store, const Filter& filter) {
  Chosen chosen;
  chosen.states = filter.states;
  storage::TrialQuery query;
  query.sweep = filter.sweep;
  if (filter.states.size() == 1) query.state = *filter.states.begin();
  query.limit = kTrialsPageMax;
  query.count = false;
  query.after = TrialId{0};
  for (;;) {
    TAILOR_ASSIGN_OR_RETURN(const auto page, store.trials(query));
    for (const auto& row : page.trials) {
      if (filter.takes(row)) chosen.add(row);
    }
    if (page.trials.size() < query.limit) return chosen;
    query.after = page.trials.back().id;
  }
}

Result<Chosen> choose_named(const storage::Store& store,
                            const google::protobuf::RepeatedField<std::uint64_t>& named) {
  if (named.size() > kNamedTrialsMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} trials are named, more than {}: name their sweep and a filter",
                             named.size(), kNamedTrialsMax));
  }
  Chosen chosen;
  const std::set<std::uint64_t> ids(named.begin(), named.end());
  for (const std::uint64_t id : ids) {
    auto row = store.trial(TrialId{id});
    if (!row.has_value()) {
      if (row.error().code() != Code::kNotFound) return error(row.error());
      return error(Code::kNotFound,
                   fmt::format("there is no trial {}; nothing was done", TrialId{id}.to_string()));
    }
    chosen.add(*row);
  }
  return chosen;
}

Result<core::TrialAction> action_of(v1::ControlTrialsRequest::Action action) {
  switch (action) {
    case v1::ControlTrialsRequest::ACTION_CANCEL:
      return core::TrialAction::kCancel;
    case v1::ControlTrialsRequest::ACTION_RETRY:
      return core::TrialAction::kRetry;
    case v1::ControlTrialsRequest::ACTION_SET_PRIORITY:
      return core::TrialAction::kSetPriority;
    default:
      return error(Code::kInvalidArgument, "no action; allowed: cancel, retry, priority");
  }
}

/// One request on its way through core, piece by piece. Kept alive by the callbacks.
class TrialControl : public std::enable_shared_from_this<TrialControl> {
 public:
  TrialControl(engine::Engine& engine, std::shared_ptr<ControlCall> call, core::ControlTrials event,
               Chosen chosen)
      : engine_(engine),
        call_(std::move(call)),
        event_(std::move(event)),
        chosen_(std::move(chosen)) {}

  /// Asks for the next piece, or answers. Not on more than one thread at a time.
  void go_on() {
    if (next_ == chosen_.trials.size()) return finish();
    const auto first = chosen_.trials.begin() + static_cast<std::ptrdiff_t>(next_);
    const std::size_t count =
        std::min(event_.dry_run ? kDryPiece : kPiece, chosen_.trials.size() - next_);
    core::ControlTrials piece = event_;
    piece.trials.assign(first, first + static_cast<std::ptrdiff_t>(count));
    next_ += count;
    engine_.request(std::move(piece),
                    [self = shared_from_this()](const Status& status, const core::ReplyBody& body) {
                      self->heard(status, body);
                    });
  }

 private:
  void heard(const Status& status, const core::ReplyBody& body) {
    if (!status.is_ok()) {
      // Of a first piece nothing is done, and the reason is the answer.
      if (out_.total() == 0 || event_.dry_run) return call_->finish(status);
      out_.set_stopped_by(utf8(protocol::cut(status.message(), protocol::kMessageBytesMax)));
      return finish();
    }
    if (const auto* outcome = std::get_if<core::TrialsOutcome>(&body)) add(*outcome);
    go_on();
  }

  void add(const core::TrialsOutcome& outcome) {
    out_.set_total(out_.total() + outcome.trials.size());
    for (const TrialId id : outcome.trials) {
      if (static_cast<std::size_t>(out_.trials_size()) < kNamesShown) out_.add_trials(id.value);
      const auto found = chosen_.end_classes.find(id.value);
      const std::string_view name =
          found == chosen_.end_classes.end() ? "" : protocol::end_class_name(found->second);
      ++(*out_.mutable_by_class())[std::string(name)];
    }
    for (const auto& [sweep, hit] : outcome.targets) {
      v1::ControlTrialsResponse::Target& target = target_of(sweep.value);
      target.set_sweep_name(utf8(hit.sweep_name));
      target.set_trials(target.trials() + hit.trials);
      target.set_running(target.running() + hit.running);
    }
  }

  v1::ControlTrialsResponse::Target& target_of(std::uint64_t sweep) {
    for (auto& target : *out_.mutable_targets()) {
      if (target.sweep() == sweep) return target;
    }
    auto& target = *out_.add_targets();
    target.set_sweep(sweep);
    return target;
  }

  void finish() {
    if (static_cast<std::size_t>(out_.targets_size()) > kNamesShown) {
      out_.mutable_targets()->DeleteSubrange(static_cast<int>(kNamesShown),
                                             out_.targets_size() - static_cast<int>(kNamesShown));
    }
    call_->finish(Status::ok(), &out_);
  }

  engine::Engine& engine_;
  const std::shared_ptr<ControlCall> call_;
  const core::ControlTrials event_;
  const Chosen chosen_;
  std::size_t next_ = 0;
  v1::ControlTrialsResponse out_;
};

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ControlTrials(
    Context*, const v1::ControlTrialsRequest* request, v1::ControlTrialsResponse* response) {
  return begin(
      reads_, "ControlTrials", response, options_.on_call,
      [this, request = *request](const std::shared_ptr<ControlCall>& call) {
        const auto action = action_of(request.action());
        if (!action.has_value()) return call->finish(action.error());
        const auto chosen = [&]() -> Result<Chosen> {
          const bool filtered = request.has_filter() || request.has_failed_of();
          if (filtered == (request.trials_size() > 0)) {
            return error(Code::kInvalidArgument,
                         "name trials, or a sweep whose trials are meant; one of both");
          }
          if (!filtered) return choose_named(views_.store(), request.trials());
          v1::TrialFilter filter = request.filter();
          if (request.has_failed_of()) {
            *filter.mutable_sweep() = request.failed_of();
            filter.add_states(v1::TRIAL_STATE_FAILED);
          }
          TAILOR_ASSIGN_OR_RETURN(const SweepId sweep, find(filter.sweep()));
          TAILOR_ASSIGN_OR_RETURN(const Filter read, read_filter(views_.store(), sweep, filter));
          return choose(views_.store(), read);
        }();
        if (!chosen.has_value()) return call->finish(chosen.error());
        core::ControlTrials event;
        event.action = *action;
        event.dry_run = request.dry_run();
        event.priority = request.priority();
        event.states = chosen->states;
        std::make_shared<TrialControl>(views_.engine(), call, std::move(event), *chosen)->go_on();
      });
}

}  // namespace tailor::rpc
