// What a trial directory and the wire hold: spec.json, lines of reports.jsonl, and the messages of
// workers as bytes. What is accepted writes itself as JSON that reads back to the same bytes.
#include "protocol/convert.h"
#include "protocol/limits.h"
#include "tailor/v1/trial.pb.h"
#include "tailor/v1/worker.pb.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {

std::vector<std::string> fuzz_seeds() {
  v1::WorkerMessage hello;
  hello.mutable_hello();
  v1::WorkerMessage reports;
  reports.mutable_reports();
  v1::WorkerMessage whole;
  auto* body = whole.mutable_hello();
  body->set_worker_name("node7");
  body->set_version("0.1.0");
  body->add_labels("ssd");
  body->add_slots()->set_kind(v1::DEVICE_KIND_CPU);
  body->add_held()->mutable_ref()->set_trial(1);
  v1::WorkerMessage metrics;
  metrics.mutable_reports()->mutable_ref()->set_trial(1);
  auto* report = metrics.mutable_reports()->add_reports();
  report->set_sequence(1);
  (*report->mutable_metric()->mutable_values())[""] = 1.5;
  v1::WorkerMessage ended;
  ended.mutable_reports()->mutable_ref()->set_trial(1);
  ended.mutable_reports()->add_reports()->mutable_end()->set_end(static_cast<v1::EndClass>(99));
  v1::WorkerMessage refused;
  refused.mutable_refused()->mutable_ref()->set_trial(1);
  refused.mutable_refused()->set_end_class("melted");
  refused.mutable_refused()->set_reason(std::string(5'000, 'x'));
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "{\"architecture\":";
  return {
      R"({"trial_id":"1","seed":"7","architecture":{"family":"FAMILY_LLAMA","d_model":64,)"
      R"("heads":4,)"
      R"("kv_heads":2,"head_dim":16,"vocab_size":256,"tie_embeddings":true,)"
      R"("ffn_kind":"FFN_KIND_SWIGLU",)"
      R"("ffn_norm":"FFN_NORM_PER_SUB","widths":[{"d_h":[96]},{"d_h":[96]}],"rope_theta":10000,)"
      R"("norm_eps":1e-05},"data":{"train":"t.tokens","validation":"v.tokens",)"
      R"("sequence_length":"64"},)"
      R"("train":{"tokens":"1000","batch_tokens":"128","optimizer":{"lr":0.001,"clip":1}}})",
      R"({"sequence":"1","wall_ms":"5","started":{"pid":"3","host":"h","device":"cpu"}})",
      R"({"sequence":"2","wall_ms":"6","step":{"step":"1","tokens":"2","loss":"NaN"}})",
      R"({"sequence":"3","wall_ms":"6","metrics":{"step":"1","tokens":"2","values":{"":1.5}}})",
      R"({"sequence":"4","end":{"end":"END_CLASS_COMPLETED","message":"x"}})",
      std::string("{\"sequence\":\"1\"}\0x", 18),
      deep,
      hello.SerializeAsString(),
      reports.SerializeAsString(),
      whole.SerializeAsString(),
      metrics.SerializeAsString(),
      ended.SerializeAsString(),
      refused.SerializeAsString(),
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  using fuzz::expect;
  const std::string_view text = fuzz::as_text(data, size);
  if (const auto spec = protocol::trial_spec_from_json(text)) {
    const auto again = protocol::trial_spec_from_json(protocol::to_json(*spec));
    expect(again && protocol::to_json(*again) == protocol::to_json(*spec), "a spec reads back");
  }
  if (const auto report = protocol::report_from_json(text)) {
    const std::string line = protocol::to_json_line(*report);
    expect(line.find('\n') == line.npos, "a report is one line");
    const auto again = protocol::report_from_json(line);
    expect(again && protocol::to_json_line(*again) == line, "a report reads back");
  }
  v1::WorkerMessage from_worker;
  if (from_worker.ParseFromArray(data, static_cast<int>(size))) {
    if (const auto message = protocol::from_proto(from_worker)) {
      expect(protocol::check_message(*message).is_ok(), "what is accepted is within the limits");
      v1::WorkerMessage again;
      protocol::to_proto(*message, &again);
      expect(protocol::from_proto(again).has_value(), "what is accepted can be sent on");
    }
  }
  v1::CoordinatorMessage from_coordinator;
  if (from_coordinator.ParseFromArray(data, static_cast<int>(size))) {
    (void)protocol::from_proto(from_coordinator);
  }
  return 0;
}
