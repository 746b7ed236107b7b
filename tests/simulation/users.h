// Users: people at the command line. They submit until they are answered, pause, resume, cancel,
// retry and drain.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "tests/simulation/ledger.h"

namespace tailor::simulation {

class Users {
 public:
  Users(Context& context, Ledger& ledger) : c_(context), ledger_(ledger) {}

  std::function<bool()> coordinator_up;
  std::function<void(core::Event)> post;

  /// Submits both sweeps, again and again until each has an answer.
  void begin();
  /// One request at random.
  void act(std::size_t workers);
  void on_reply(const core::Reply& reply);
  /// Open requests will never be answered: the coordinator died.
  void coordinator_died() { open_.clear(); }
  /// Second phase: whatever was paused goes on.
  void resume_all();
  /// Every sweep is known and every request since the last crash was answered exactly once.
  bool satisfied() const { return open_.empty() && ids_.size() == (c_.faults.nodes > 1 ? 5 : 4); }

 private:
  struct File {
    std::string text;
    std::string name;
  };
  void submit(std::size_t which);
  core::RequestId ask() {
    open_.insert(++last_request_);
    return last_request_;
  }

  Context& c_;
  Ledger& ledger_;
  std::vector<File> files_;
  std::set<core::RequestId> open_;
  std::map<core::RequestId, std::size_t> submissions_;
  std::map<std::size_t, SweepId> ids_;  // by file
  core::RequestId last_request_ = 0;
  std::set<WorkerId> quarantined_;  // by request, once
};

}  // namespace tailor::simulation
