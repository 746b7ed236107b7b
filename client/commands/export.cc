// tailor export: a sweep's trials or curves as CSV, JSON or JSON lines, written as they come: what
// the sweep has is never in memory as a whole.
#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <optional>
#include <set>

#include "base/atomic_file.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

constexpr std::uint64_t kTrialsPage = 1'000;
constexpr std::size_t kBlockBytes = 1 << 20;  // written at once

struct ExportOptions {
  std::string sweep, what = "trials", format = "csv", output, metric;
};

/// Where an export goes: stdout, or a file that is there whole at the end or not at all.
class Sink {
 public:
  explicit Sink(const std::string& path) {
    if (!path.empty()) file_.emplace(require(AtomicFile::create(path)));
  }

  void write(std::string_view text) {
    block_ += text;
    if (block_.size() >= kBlockBytes) flush();
  }
  void finish() {
    flush();
    if (file_) require(file_->commit());
  }

 private:
  void flush() {
    if (file_) {
      require(file_->write(block_));
    } else {
      std::fwrite(block_.data(), 1, block_.size(), stdout);
      flush_output();  // a full disk or a closed pipe ends it here, not after the last trial
    }
    block_.clear();
  }

  std::optional<AtomicFile> file_;
  std::string block_;
};

/// Entries of an array, or one a line.
class JsonWriter {
 public:
  JsonWriter(Sink& sink, bool lines) : sink_(sink), lines_(lines) {}
  void entry(const Json& json) {
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    sink_.write(lines_ ? text + "\n" : fmt::format("{}\n  {}", first_ ? "[" : ",", text));
    first_ = false;
  }
  void finish() {
    if (!lines_) sink_.write(first_ ? "[]\n" : "\n]\n");
  }

 private:
  Sink& sink_;
  const bool lines_;
  bool first_ = true;
};

/// RFC 4180 quoting.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

/// Names are written as they are, so that programs read back the same; a spreadsheet would
/// calculate some: the first of these is said.
class FormulaNote {
 public:
  explicit FormulaNote(const Printer& out) : out_(out) {}
  void look(const std::string& name) {
    if (said_ || name.find_first_of("=+-@") != 0) return;
    said_ = true;
    out_.note(fmt::format(
        "the name \"{}\" begins like a formula: read the CSV as text in a spreadsheet", name));
  }

 private:
  const Printer out_;
  bool said_ = false;
};

std::string number(double value) { return fmt::format("{}", value); }

std::uint64_t export_trials_csv(Context& context, const v1::SweepRef& sweep, Sink& sink) {
  // A table's columns are known only when every trial was seen: they are looked through first.
  std::set<std::string> metrics;
  for_each_trial(context, sweep, [&](const v1::Trial& t) {
    for (const auto& [name, value] : t.values()) metrics.insert(name);
  });
  std::string header =
      "trial,sweep,candidate,seed,state,attempts,end_class,objective,parameters_body,created_ms,"
      "started_ms,ended_ms";
  for (const auto& name : metrics) header += "," + csv_cell(name);
  sink.write(header + "\n");
  FormulaNote formulas(context.printer());
  std::set<std::string> late;
  const std::uint64_t count = for_each_trial(context, sweep, [&](const v1::Trial& t) {
    formulas.look(t.candidate_name());
    std::string row = fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{}", trial_text(t.id()), sweep_text(t.sweep()),
        csv_cell(t.candidate_name()), t.seed(), state_name(t.state()), t.attempts(),
        csv_cell(t.end_class()), t.has_objective() ? number(t.objective()) : "",
        t.parameters_body(), t.created_ms(), t.started_ms(), t.ended_ms());
    for (const auto& name : metrics) {
      const auto found = t.values().find(name);
      row += "," + (found == t.values().end() ? "" : number(found->second));
    }
    for (const auto& [name, value] : t.values()) {
      if (metrics.count(name) == 0) late.insert(name);
    }
    sink.write(row + "\n");
  });
  for (const auto& name : late) {
    context.printer().note(fmt::format(
        "the metric \"{}\" came while this was written and has no column; export again", name));
  }
  return count;
}

std::uint64_t export_trials_json(Context& context, const v1::SweepRef& sweep, JsonWriter& json) {
  const std::uint64_t count =
      for_each_trial(context, sweep, [&](const v1::Trial& t) { json.entry(to_json(t)); });
  json.finish();
  return count;
}

/// Calls `take` with every series whole. Returns how many trials have one.
std::uint64_t for_each_curve(Context& context, const v1::SweepRef& sweep, const std::string& metric,
                             const std::function<void(const v1::Curve&)>& take) {
  v1::ExportCurvesRequest request;
  *request.mutable_sweep() = sweep;
  request.set_metric(metric);
  require_text(request);
  grpc::ClientContext call;  // no deadline: it lasts as long as there is something to send
  const auto reader = context.stub().ExportCurves(&call, request);
  std::optional<v1::Curve> open;  // a long series comes in several pieces
  std::uint64_t trials = 0;
  std::uint64_t last = 0;
  const auto close = [&] {
    if (open) take(*open);
    open.reset();
  };
  v1::ExportCurvesResponse message;
  std::uint64_t pruned = 0;
  while (reader->Read(&message)) {
    pruned = message.trials_pruned();
    for (auto& curve : *message.mutable_curves()) {
      if (curve.trial() != last) ++trials;
      last = curve.trial();
      if (open && open->trial() == curve.trial() &&
          open->series().metric() == curve.series().metric()) {
        open->mutable_series()->MergeFrom(curve.series());
        continue;
      }
      close();
      open.emplace().Swap(&curve);
    }
  }
  context.check(reader->Finish());
  close();
  if (pruned > 0) {
    context.printer().note(
        fmt::format("{} trials have no curves here: they were pruned ([prune] points of the "
                    "coordinator)",
                    pruned));
  }
  return trials;
}

std::uint64_t export_curves_csv(Context& context, const v1::SweepRef& sweep,
                                const std::string& metric, Sink& sink) {
  sink.write("trial,candidate,seed,metric,step,tokens,value\n");
  FormulaNote formulas(context.printer());
  return for_each_curve(context, sweep, metric, [&](const v1::Curve& curve) {
    formulas.look(curve.candidate_name());
    const auto& s = curve.series();
    const std::string head =
        fmt::format("{},{},{},{},", trial_text(curve.trial()), csv_cell(curve.candidate_name()),
                    curve.seed(), csv_cell(s.metric()));
    std::string rows;
    for (int i = 0; i < s.steps_size(); ++i) {
      fmt::format_to(std::back_inserter(rows), "{}{},{},{}\n", head, s.steps(i),
                     i < s.tokens_size() ? s.tokens(i) : 0, s.values(i));
    }
    sink.write(rows);
  });
}

std::uint64_t export_curves_json(Context& context, const v1::SweepRef& sweep,
                                 const std::string& metric, JsonWriter& json) {
  const std::uint64_t trials = for_each_curve(context, sweep, metric, [&](const v1::Curve& curve) {
    Json entry = to_json(curve.series());
    entry["trial"] = curve.trial();
    entry["candidate"] = curve.candidate_name();
    entry["seed"] = curve.seed();
    json.entry(entry);
  });
  json.finish();
  return trials;
}

void run_export(Context& context, const ExportOptions& options) {
  // By id: "last" may be another sweep before the last page.
  v1::SweepRef sweep;
  sweep.set_id(find_sweep(context, options.sweep).id());
  const std::string format = context.json_lines ? "jsonl" : context.json ? "json" : options.format;
  Sink sink(options.output);
  JsonWriter json(sink, format == "jsonl");
  const bool csv = format == "csv";
  const bool curves = options.what == "curves";
  const std::uint64_t trials =
      curves ? (csv ? export_curves_csv(context, sweep, options.metric, sink)
                    : export_curves_json(context, sweep, options.metric, json))
             : (csv ? export_trials_csv(context, sweep, sink)
                    : export_trials_json(context, sweep, json));
  sink.finish();
  const Printer out = context.printer();
  if (trials == 0)
    out.note(curves ? "no trial of the sweep has a curve" : "the sweep has no trials");
  if (!options.output.empty()) {
    out.note(fmt::format("wrote {} ({} trials)", options.output, trials));
  }
}

}  // namespace

std::uint64_t for_each_trial(Context& context, const v1::SweepRef& sweep,
                             const std::function<void(const v1::Trial&)>& take) {
  v1::ListTrialsRequest request;
  *request.mutable_sweep() = sweep;
  request.set_limit(kTrialsPage);
  for (std::uint64_t count = 0;;) {
    const auto answer = context.call<v1::ListTrialsRequest, v1::ListTrialsResponse>(
        &v1::CoordinatorService::Stub::ListTrials, request);
    for (const auto& trial : answer.trials()) take(trial);
    count += static_cast<std::uint64_t>(answer.trials_size());
    if (!answer.more() || answer.trials_size() == 0) return count;
    request.set_after(answer.trials(answer.trials_size() - 1).id());
  }
}

void add_export(CLI::App& app, Context& context) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = add_command(
      app, "export", "Writes a sweep's trials or loss curves as CSV, JSON or JSON lines.",
      "  tailor export last > trials.csv\n  tailor export last --what curves --metric "
      "validation_loss -o curves.csv\n"
      "  tailor export last --format jsonl");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
  command->add_option("--what", options->what, "trials or curves")
      ->check(CLI::IsMember({"trials", "curves"}));
  command->add_option("--format", options->format, "csv, json or jsonl")
      ->check(CLI::IsMember({"csv", "json", "jsonl"}));
  command->add_option("--metric", options->metric, "only this metric (curves)");
  command->add_option("-o,--output", options->output,
                      "a file, replaced as a whole (default: stdout)");
  command->callback([&context, options] { run_export(context, *options); });
}

}  // namespace tailor::client
