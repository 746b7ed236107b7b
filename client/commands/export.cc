// tailor export: a sweep's trials or curves as CSV, JSON or JSON lines.
#include <fmt/format.h>

#include <set>

#include "base/file.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

std::vector<v1::Trial> all_trials(Context& context, const std::string& sweep) {
  std::vector<v1::Trial> trials;
  v1::ListTrialsRequest request;
  *request.mutable_sweep() = sweep_ref(sweep);
  request.set_limit(10'000);
  for (;;) {
    request.set_offset(trials.size());
    const auto answer = context.call<v1::ListTrialsRequest, v1::ListTrialsResponse>(
        &v1::CoordinatorService::Stub::ListTrials, request);
    trials.insert(trials.end(), answer.trials().begin(), answer.trials().end());
    if (answer.trials_size() == 0 || trials.size() >= answer.total()) return trials;
  }
}

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
/// calculate some.
void note_formulas(const Printer& out, const std::vector<v1::Trial>& trials) {
  for (const auto& t : trials) {
    if (t.candidate_name().find_first_of("=+-@") != 0) continue;
    out.note(
        fmt::format("the name \"{}\" begins like a formula: read the CSV as text in a spreadsheet",
                    t.candidate_name()));
    return;
  }
}

std::string number(double value) { return fmt::format("{}", value); }

std::string trials_csv(const std::vector<v1::Trial>& trials) {
  std::set<std::string> metrics;
  for (const auto& t : trials) {
    for (const auto& [name, value] : t.values()) metrics.insert(name);
  }
  std::string out =
      "trial,sweep,candidate,seed,state,attempts,end_class,objective,parameters_body,created_ms,"
      "started_ms,ended_ms";
  for (const auto& name : metrics) out += "," + csv_cell(name);
  out += "\n";
  for (const auto& t : trials) {
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", trial_text(t.id()),
                       sweep_text(t.sweep()), csv_cell(t.candidate_name()), t.seed(),
                       state_name(t.state()), t.attempts(), csv_cell(t.end_class()),
                       t.has_objective() ? number(t.objective()) : "", t.parameters_body(),
                       t.created_ms(), t.started_ms(), t.ended_ms());
    for (const auto& name : metrics) {
      const auto found = t.values().find(name);
      out += "," + (found == t.values().end() ? "" : number(found->second));
    }
    out += "\n";
  }
  return out;
}

/// Every point of every metric of every trial, or of one metric.
struct Curves {
  std::string csv = "trial,candidate,seed,metric,step,tokens,value\n";
  Json json = Json::array();
};

Curves curves(Context& context, const std::vector<v1::Trial>& trials, const std::string& only) {
  Curves out;
  for (const auto& t : trials) {
    v1::GetTrialRequest about;
    about.set_trial(t.id());
    const auto whole = context.call<v1::GetTrialRequest, v1::GetTrialResponse>(
        &v1::CoordinatorService::Stub::GetTrial, about);
    for (const auto& metric : whole.metrics()) {
      if (!only.empty() && metric != only) continue;
      v1::GetSeriesRequest request;
      request.set_trial(t.id());
      request.set_metric(metric);
      const auto answer = context.call<v1::GetSeriesRequest, v1::GetSeriesResponse>(
          &v1::CoordinatorService::Stub::GetSeries, request);
      const auto& s = answer.series();
      for (int i = 0; i < s.steps_size(); ++i) {
        out.csv += fmt::format("{},{},{},{},{},{},{}\n", trial_text(t.id()),
                               csv_cell(t.candidate_name()), t.seed(), csv_cell(metric), s.steps(i),
                               i < s.tokens_size() ? s.tokens(i) : 0, number(s.values(i)));
      }
      Json entry = to_json(s);
      entry["trial"] = t.id();
      entry["candidate"] = t.candidate_name();
      entry["seed"] = t.seed();
      out.json.push_back(std::move(entry));
    }
  }
  return out;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  struct Options {
    std::string sweep, what = "trials", format = "csv", output, metric;
  };
  auto options = std::make_shared<Options>();
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
  command->callback([&context, options] {
    const std::vector<v1::Trial> trials = all_trials(context, options->sweep);
    if (trials.empty()) context.printer().note("the sweep has no trials");
    const std::string format = context.json ? "json" : options->format;
    Json json = Json::array();
    std::string text;
    if (options->what == "curves") {
      Curves found = curves(context, trials, options->metric);
      text = std::move(found.csv);
      json = std::move(found.json);
    } else if (format == "csv") {
      text = trials_csv(trials);
    } else {
      for (const auto& t : trials) json.push_back(to_json(t));
    }
    if (format == "csv") note_formulas(context.printer(), trials);
    if (format == "json") text = json.dump(2) + "\n";
    if (format == "jsonl") {
      text.clear();
      for (const auto& entry : json) text += entry.dump() + "\n";
    }
    if (options->output.empty()) {
      std::fwrite(text.data(), 1, text.size(), stdout);
    } else {
      require(write_file_atomic(options->output, text));
      context.printer().note(fmt::format("wrote {} ({} trials)", options->output, trials.size()));
    }
  });
}

}  // namespace tailor::client
