// AgentHarness: step() with a disk made of two maps, so that tests say what happens and look at
// what the worker does about it.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/agent/step.h"

namespace tailor::agent {

inline protocol::AttemptRef attempt_ref(std::uint64_t trial, std::uint32_t number = 1,
                                        FencingToken token = 0) {
  return {{TrialId{trial}, number}, token == 0 ? trial * 100 + number : token};
}

inline protocol::Report metric(std::uint64_t sequence, double loss = 1.0) {
  return {sequence, 0,
          protocol::MetricReport{static_cast<std::int64_t>(sequence), 0, {{"train_loss", loss}}}};
}

inline protocol::Report end_report(std::uint64_t sequence,
                                   protocol::EndClass end = protocol::EndClass::kCompleted) {
  return {sequence, 0, protocol::EndReport{end, "", 9, {{"validation_loss", 2.5}}}};
}

/// The effects of kind T, in order.
template <typename T>
std::vector<T> of(const Effects& effects) {
  std::vector<T> found;
  for (const AgentEffect& effect : effects) {
    if (const T* value = std::get_if<T>(&effect)) found.push_back(*value);
  }
  return found;
}

/// The messages of kind T that were sent, in order.
template <typename T>
std::vector<T> sent(const Effects& effects) {
  std::vector<T> found;
  for (const Send& send : of<Send>(effects)) {
    if (const T* value = std::get_if<T>(&send.message)) found.push_back(*value);
  }
  return found;
}

/// Sequence numbers of all reports sent, in order.
inline std::vector<std::uint64_t> sent_sequences(const Effects& effects) {
  std::vector<std::uint64_t> found;
  for (const protocol::Reports& message : sent<protocol::Reports>(effects)) {
    for (const protocol::Report& report : message.reports) found.push_back(report.sequence);
  }
  return found;
}

class AgentHarness {
 public:
  explicit AgentHarness(AgentOptions options = default_options()) : state(std::move(options)) {}

  static AgentOptions default_options() {
    AgentOptions options;
    options.worker_name = "node1";
    options.instance = "i1";
    options.slots = {{0, protocol::DeviceKind::kCpu, "cpu", 0, 2},
                     {1, protocol::DeviceKind::kGpu, "H200", 1 << 30, 4}};
    return options;
  }

  /// Applies `event` and answers every read from the maps, until nothing is left to answer.
  Effects apply(AgentEvent event) {
    Effects all;
    std::deque<AgentEvent> events{std::move(event)};
    while (!events.empty()) {
      Effects effects = step(state, events.front(), now);
      events.pop_front();
      for (AgentEffect& effect : effects) {
        if (const auto* read = std::get_if<ReadReports>(&effect)) events.push_back(answer(*read));
        if (const auto* read = std::get_if<ReadLog>(&effect)) events.push_back(answer(*read));
        if (const auto* end = std::get_if<PersistEnd>(&effect)) {
          ends[end->ref] = end->report;
          events.push_back(EndPersisted{end->ref, end->report.sequence});
        }
        all.push_back(std::move(effect));
      }
    }
    return all;
  }

  Effects tick(std::int64_t ms = 0) {
    now += ms;
    return apply(Tick{1'700'000'000'000 + now});
  }
  /// Time passes in small steps, as it does in the real loop.
  Effects wait(std::int64_t ms, std::int64_t every = 100) {
    Effects all;
    for (std::int64_t done = 0; done < ms; done += every) {
      for (AgentEffect& effect : tick(std::min(every, ms - done))) all.push_back(std::move(effect));
    }
    return all;
  }

  Effects start(std::vector<RestoredAttempt> restored = {}) {
    return apply(Start{1'700'000'000'000 + now, std::move(restored)});
  }
  Effects receive(protocol::CoordinatorMessage message) {
    return apply(Received{state.session, std::move(message)});
  }
  /// From a closed stream to Hello. REQUIRES: the back-off has passed.
  Effects open() {
    tick();
    return apply(SessionOpened{state.session});
  }
  Effects welcome(std::vector<protocol::HeldVerdict> held = {}) {
    return receive(protocol::Welcome{WorkerId{1}, 1000, 20'000, std::move(held)});
  }
  Effects connect(std::vector<protocol::HeldVerdict> held = {}) {
    open();
    return welcome(std::move(held));
  }
  Effects lose_session() {
    return apply(SessionClosed{state.session, Status(Code::kUnavailable, "connection reset")});
  }

  static protocol::Assign assignment(const protocol::AttemptRef& ref,
                                     std::vector<std::uint32_t> slots = {0}) {
    protocol::Assign assign;
    assign.spec.trial = ref.attempt.trial;
    assign.spec.attempt = ref.attempt.number;
    assign.spec.token = ref.token;
    assign.slots = std::move(slots);
    return assign;
  }
  Effects assign(const protocol::AttemptRef& ref, std::vector<std::uint32_t> slots = {0}) {
    return receive(assignment(ref, std::move(slots)));
  }
  /// Assigns and lets the trainer come up.
  void run_trainer(const protocol::AttemptRef& ref, std::vector<std::uint32_t> slots = {0}) {
    assign(ref, std::move(slots));
    apply(TrainerStarted{ref});
  }
  Effects acknowledge(const protocol::AttemptRef& ref, std::uint64_t through) {
    return receive(protocol::ReportsAck{ref, through});
  }
  bool holds(const protocol::AttemptRef& ref) const { return state.attempts.contains(ref); }

  AgentState state;
  MonotonicMs now = 1'000'000;
  std::map<protocol::AttemptRef, std::vector<protocol::Report>> files;  // reports.jsonl
  std::map<protocol::AttemptRef, std::string> logs;
  std::map<protocol::AttemptRef, std::string> damages;    // where reading stops, and why
  std::map<protocol::AttemptRef, protocol::Report> ends;  // end.json

 private:
  AgentEvent answer(const ReadReports& read) {
    ReportsRead event{read.ref, read.after_sequence, {}, true, 0, damages[read.ref]};
    for (const protocol::Report& report : files[read.ref]) {
      if (report.sequence > read.after_sequence) {
        if (event.reports.size() == read.count_max) {
          event.at_end = false;
          break;
        }
        event.reports.push_back(report);
      }
      if (std::holds_alternative<protocol::EndReport>(report.body)) {
        event.end_sequence = report.sequence;
      }
    }
    return event;
  }
  AgentEvent answer(const ReadLog& read) {
    const std::string& log = logs[read.ref];
    LogRead event{read.ref, read.offset, {}, true};
    if (read.offset < log.size()) {
      event.bytes = log.substr(static_cast<std::size_t>(read.offset), read.bytes_max);
    }
    event.at_end = read.offset + event.bytes.size() >= log.size();
    return event;
  }
};

}  // namespace tailor::agent
