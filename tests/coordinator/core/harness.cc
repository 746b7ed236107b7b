#include "tests/coordinator/core/harness.h"

#include <fmt/format.h>

#include "coordinator/engine/recall.h"

namespace tailor::core {

std::string SweepFile::text() const {
  return fmt::format(R"(
name = "{}"
objectives = ["validation_loss"]

[data]
train = "train.tokens"
validation = "validation.tokens"
sequence_length = 16

[architecture]
family = "llama"
d_model = 32
layers = 2
head_dim = 16
vocab_size = 256
ffn = {{ kind = "swiglu", d_h = 64 }}
{}
{}
{}
[train]
tokens = 1024
batch = 64

[seeds]
{}

[resources]
{}

[retry]
{}

[limits]
{}
)",
                     name, budget, candidates, space, seeds, resources, retry, limits);
}

std::string candidate(const std::string& name, int d_h) {
  return fmt::format("[[candidate]]\nname = \"{}\"\n\"ffn.d_h\" = {}\n", name, d_h);
}

Effects& Harness::step(const Event& event) {
  one_step(event);
  // A request about what has ended: read its rows and ask again, as the engine does.
  Event again = event;
  for (int tries = 0; tries < 5; ++tries) {
    const RowsWanted* wanted = nullptr;
    for (const Outward& out : last.outward) {
      const auto* reply = std::get_if<Reply>(&out);
      if (reply != nullptr && wanted == nullptr) wanted = std::get_if<RowsWanted>(&reply->body);
    }
    if (wanted == nullptr) return last;
    auto rows = engine::read_rows(store, *wanted);
    EXPECT_TRUE(rows.has_value());
    ++recalls;
    EXPECT_TRUE(engine::attach_rows(again, std::move(*rows)));
    one_step(again);
  }
  ADD_FAILURE() << "rows are wanted again and again";
  return last;
}

void Harness::one_step(const Event& event) {
  last = core::step(state, event, now);
  const Status sound = check_invariants(state);
  EXPECT_TRUE(sound.is_ok()) << sound.message();
  if (!last.writes.empty()) {
    const Status committed = store.commit(last.writes);
    EXPECT_TRUE(committed.is_ok()) << committed.message();
  }
  for (const auto& assign : sent<protocol::Assign>()) {
    const auto found = state.trials.find(assign.spec.trial);
    EXPECT_TRUE(found != state.trials.end() && found->second.live);
    EXPECT_EQ(found->second.live->row.token, assign.spec.token);
  }
}

void Harness::advance(std::int64_t ms) {
  now.mono_ms += ms;
  now.wall_ms += ms;
  step(Tick{});
}

void Harness::restart() {
  const std::string before = durable_text(state);
  const auto snapshot = store.load_open();
  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().message();
  now.mono_ms += 12'345;  // another process, another clock
  auto loaded = core::load(*snapshot, options, now);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  state = std::move(*loaded);
  EXPECT_EQ(durable_text(state), before);
}

const Sweep& Harness::sweep(std::uint64_t id) {
  const auto found = state.sweeps.find(SweepId{id});
  if (found != state.sweeps.end()) return found->second;
  const auto row = store.sweep(SweepId{id});
  EXPECT_TRUE(row.has_value()) << "there is no s" << id;
  auto read = read_ended(*row, store.candidate_page(SweepId{id}, 0, 1)->total);
  EXPECT_TRUE(read.has_value()) << read.error().message();
  return ended_.insert_or_assign(id, std::move(*read)).first->second;
}

Reply Harness::only_reply() const {
  std::vector<Reply> replies;
  for (const Outward& out : last.outward) {
    if (const auto* reply = std::get_if<Reply>(&out)) replies.push_back(*reply);
  }
  EXPECT_EQ(replies.size(), 1u) << "a request has exactly one reply";
  return replies.empty() ? Reply{} : replies.front();
}

Reply Harness::submit(const SweepFile& file) {
  const std::string text = file.text();
  const auto spec = sweep::parse(text, "test.toml", "/data");
  EXPECT_TRUE(spec.has_value()) << spec.error().message();
  if (!spec) return {};
  step(SubmitSweep{next_request_++, std::make_shared<const sweep::Spec>(*spec), text, "/data",
                   sweep::spec_hash(text, "/data")});
  return only_reply();
}

Reply Harness::control(SweepAction action, SweepId sweep) {
  step(ControlSweep{next_request_++, sweep, action, 0});
  return only_reply();
}

Reply Harness::trials(TrialAction action, std::vector<TrialId> ids, SweepId failed_of,
                      bool dry_run) {
  step(ControlTrials{next_request_++, std::move(ids), failed_of, action, dry_run});
  return only_reply();
}

protocol::Hello hello(const std::string& name, int cpus, int gpus, const std::string& instance) {
  protocol::Hello made;
  made.worker_name = name;
  made.instance = instance;
  made.version = "test";
  made.host = "host-" + name;
  for (int i = 0; i < cpus + gpus; ++i) {
    const bool gpu = i >= cpus;
    made.slots.push_back({static_cast<std::uint32_t>(i),
                          gpu ? protocol::DeviceKind::kGpu : protocol::DeviceKind::kCpu,
                          gpu ? "gpu" : "cpu", gpu ? std::uint64_t{24} << 30 : 1u << 30, 2});
  }
  return made;
}

SessionId Harness::connect(const std::string& name, int slots,
                           std::vector<protocol::HeldAttempt> held, const std::string& instance) {
  protocol::Hello made = hello(name, slots, 0, instance);
  made.held = std::move(held);
  return connect(std::move(made));
}

SessionId Harness::connect(protocol::Hello hello) {
  const SessionId session = next_session_++;
  step(SessionOpened{session, std::move(hello)});
  return session;
}

std::string Harness::workers_of(std::uint64_t trial) const {
  const auto found = state.trials.find(TrialId{trial});
  std::string names;
  if (found == state.trials.end() || !found->second.live) return names;
  for (const Member& member : found->second.live->members) {
    names += (names.empty() ? "" : " ") + state.workers.at(member.row.worker).row.name;
  }
  return names;
}

std::vector<std::string> Harness::said(const std::string& kind) const {
  std::vector<std::string> messages;
  const auto events = store.events(0, 100'000);
  EXPECT_TRUE(events.has_value());
  for (const storage::EventRow& event : *events) {
    if (storage::event_kind_name(event.kind) == kind) messages.push_back(event.message);
  }
  return messages;
}

protocol::AttemptRef Harness::live(std::uint64_t trial) const {
  const Trial& t = state.trials.at(TrialId{trial});
  EXPECT_TRUE(t.live.has_value()) << "t" << trial << " has no live attempt";
  if (!t.live) return {};
  return {t.live->row.id, t.live->row.token};
}

void Harness::report(SessionId session, const protocol::AttemptRef& ref, std::uint64_t first,
                     std::vector<Body> bodies) {
  protocol::Reports message;
  message.ref = ref;
  for (Body& body : bodies) message.reports.push_back({first++, now.wall_ms, std::move(body)});
  send(session, std::move(message));
}

void Harness::finish(SessionId session, std::uint64_t trial, protocol::EndClass end, double loss) {
  protocol::StartedReport started;
  started.host = "h";
  protocol::EndReport last_word;
  last_word.end = end;
  last_word.message = end == protocol::EndClass::kCompleted ? "" : "it broke";
  last_word.step = 16;
  if (end == protocol::EndClass::kCompleted) last_word.values = {{"validation_loss", loss}};
  report(session, live(trial), 1,
         {started, protocol::MetricReport{1, 64, {{"train_loss", loss + 1}}}, last_word});
}

std::vector<CloseSession> Harness::closed() const {
  std::vector<CloseSession> found;
  for (const Outward& out : last.outward) {
    if (const auto* close = std::get_if<CloseSession>(&out)) found.push_back(*close);
  }
  return found;
}

std::vector<std::string> Harness::event_kinds() const {
  std::vector<std::string> kinds;
  const auto events = store.events(0, 100'000);
  EXPECT_TRUE(events.has_value());
  for (const storage::EventRow& event : *events) {
    kinds.emplace_back(storage::event_kind_name(event.kind));
  }
  return kinds;
}

}  // namespace tailor::core
