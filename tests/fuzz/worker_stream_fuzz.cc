// The stream of a worker: any messages in any order, as they come out of the wire, to an engine
// with a sweep to run. Each is refused or dealt with, and the coordinator goes on.
#include <atomic>
#include <chrono>
#include <future>

#include "coordinator/engine/engine.h"
#include "protocol/convert.h"
#include "protocol/limits.h"
#include "storage/memory_store.h"
#include "tailor/v1/worker.pb.h"
#include "tests/coordinator/engine/support.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

/// One length and so many bytes of a message, again and again.
std::string framed(const std::vector<v1::WorkerMessage>& messages) {
  std::string bytes;
  for (const auto& message : messages) {
    const std::string body = message.SerializeAsString();
    bytes += static_cast<char>(body.size() >> 8);
    bytes += static_cast<char>(body.size());
    bytes += body;
  }
  return bytes;
}

std::vector<std::string_view> frames_of(std::string_view bytes) {
  std::vector<std::string_view> frames;
  while (bytes.size() >= 2 && frames.size() < 64) {
    const std::size_t size =
        static_cast<unsigned char>(bytes[0]) * 256u + static_cast<unsigned char>(bytes[1]);
    frames.push_back(bytes.substr(2, size));
    bytes.remove_prefix(std::min(bytes.size(), size + 2));
  }
  return frames;
}

v1::WorkerMessage hello() {
  v1::WorkerMessage message;
  protocol::to_proto(tailor::testing::hello("node1", 2), &message);
  return message;
}

v1::WorkerMessage report(const protocol::Report& report) {
  v1::WorkerMessage message;
  // The first attempt that a fresh coordinator hands out.
  protocol::to_proto(protocol::Reports{{{TrialId{1}, 1}, 1}, {report}}, &message);
  return message;
}

void wait(std::future<void> done) {
  expect(done.wait_for(std::chrono::seconds(30)) == std::future_status::ready,
         "a message is dealt with");
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  using namespace protocol;
  v1::WorkerMessage heartbeat;
  to_proto(WorkerMessage(Heartbeat{}), &heartbeat);
  v1::WorkerMessage log;
  to_proto(WorkerMessage(LogChunk{{{TrialId{1}, 1}, 1}, 0, "line\n", 0}), &log);
  v1::WorkerMessage draining;
  to_proto(WorkerMessage(Draining{"why"}), &draining);
  EndReport end;
  end.values = {{"validation_loss", 1.5}};
  return {
      framed({hello(), heartbeat, report({1, 1, StartedReport{}}),
              report({2, 2, MetricReport{1, 64, {{"train_loss", 2.5}}}}), log,
              report({3, 3, CheckpointReport{1, "/c/1", "ab", 9}}), report({4, 4, end})}),
      framed({hello(), report({1, 1, MetricReport{1, 64, {{"", 2.5}}}})}),
      framed({hello(), report({9, 1, StartedReport{}}), report({1, 1, end}), report({1, 1, end})}),
      framed({heartbeat}),
      framed({hello(), hello()}),
      framed({hello(), draining, heartbeat}),
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  storage::MemoryStore store;
  ManualClock clock;
  auto engine = engine::Engine::start(store, clock, {}, {}).value();
  tailor::testing::Answer submitted;
  engine->request(tailor::testing::submit_event(tailor::testing::sweep_text()),
                  submitted.handler());
  fuzz::expect(submitted.wait(), "a sweep is submitted");
  auto sink = std::make_shared<tailor::testing::RecordingSink>();
  core::SessionId session = 0;
  for (const std::string_view frame : fuzz::frames_of(fuzz::as_text(data, size))) {
    v1::WorkerMessage proto;
    if (!proto.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) continue;
    auto message = protocol::from_proto(proto);
    if (!message.has_value()) continue;  // the service ends such a stream
    auto promise = std::make_shared<std::promise<void>>();
    auto done = promise->get_future();
    const auto dealt_with = [promise] { promise->set_value(); };
    auto* first = std::get_if<protocol::Hello>(&*message);
    if (session == 0) {
      if (first == nullptr) continue;  // likewise
      session = engine->open_session(sink, std::move(*first), dealt_with);
    } else {
      engine->session_message(session, *std::move(message), dealt_with);
    }
    fuzz::wait(std::move(done));
  }
  if (session != 0) engine->close_session(session);
  fuzz::expect(engine->ask([](const core::State&, core::Now) { return true; }).has_value(),
               "the engine answers");
  fuzz::expect(engine->health().running, "the engine runs");
  engine->stop();
  return 0;
}
