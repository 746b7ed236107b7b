// tailor schedule: widths that were cut from measurements, shown, written out, and used again.
#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "client/format.h"
#include "client/table.h"
#include "geometry/width_problem.h"

namespace tailor::client {
namespace {

constexpr std::size_t kExportBytesMax = 64u << 20;

struct ScheduleOptions {
  std::string sweep, candidate, file, to, name;
};

std::vector<v1::Schedule> fetch_schedules(Context& context, const std::string& sweep,
                                          std::string* sweep_name) {
  v1::ListSchedulesRequest request;
  *request.mutable_sweep() = sweep_ref(sweep);
  std::vector<v1::Schedule> all;
  for (;;) {
    request.set_offset(all.size());
    const auto answer = context.call<v1::ListSchedulesRequest, v1::ListSchedulesResponse>(
        &v1::CoordinatorService::Stub::ListSchedules, request);
    *sweep_name = answer.sweep_name();
    all.insert(all.end(), answer.schedules().begin(), answer.schedules().end());
    if (answer.schedules().empty() || all.size() >= answer.total()) return all;
  }
}

/// The text under a key; "" when there is none.
std::string text_under(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

/// What a stored text says; null for none.
Json parsed(const std::string& text) {
  return text.empty() ? Json() : parse_ordered_json(text).value_or(Json(text));
}

Json schedule_json(const v1::Schedule& schedule) {
  Json json;
  json["format"] = "tailor-schedule";
  json["version"] = 1;
  json["candidate"] = schedule.candidate_name();
  json["state"] = schedule.state();
  json["message"] = schedule.message();
  json["reference"] = schedule.reference() > 0 ? Json(trial_text(schedule.reference())) : Json();
  json["measured"] = schedule.measured_trial() > 0
                         ? Json(fmt::format("{}.{}", trial_text(schedule.measured_trial()),
                                            schedule.measured_attempt()))
                         : Json();
  json["measurement_key"] = schedule.key();
  json["data_hash"] = schedule.data_hash();
  json["request"] = parsed(schedule.request_json());
  json["problem"] = parsed(schedule.problem_json());
  json["solution"] = parsed(schedule.solution_json());
  json["raw_widths"] = parsed(schedule.raw_widths_json());
  json["widths"] = parsed(schedule.widths_json());
  json["architecture"] = parsed(schedule.architecture_json());
  return json;
}

std::string widths_line(const std::string& widths_json) {
  std::string out;
  for (const auto& layer : parsed(widths_json)) {
    std::string text;
    for (const auto& width : layer) text += (text.empty() ? "" : "+") + width.dump();
    out += (out.empty() ? "" : " ") + text;
  }
  return out.empty() ? "-" : out;
}

void show_schedules(Context& context, const ScheduleOptions& options) {
  std::string name;
  const auto schedules = fetch_schedules(context, options.sweep, &name);
  const Printer out = context.printer();
  if (out.json()) {
    Json json;
    json["sweep"] = name;
    json["schedules"] = Json::array();
    for (const auto& schedule : schedules) json["schedules"].push_back(schedule_json(schedule));
    return out.document(json);
  }
  if (schedules.empty()) {
    out.note(fmt::format("no candidate of {} has widths that are cut from a measurement", name));
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& schedule : schedules) {
    rows.push_back({schedule.candidate_name(), schedule.state(),
                    schedule.reference() > 0 ? trial_text(schedule.reference()) : "-",
                    schedule.measured_trial() > 0 ? trial_text(schedule.measured_trial()) : "-",
                    schedule.state() == "cut" || schedule.state() == "same"
                        ? widths_line(schedule.widths_json())
                        : schedule.message()});
  }
  out.table({{"CANDIDATE"}, {"STATE"}, {"REFERENCE"}, {"MEASURED"}, {"WIDTHS"}}, rows);
}

void export_schedule(Context& context, const ScheduleOptions& options) {
  std::string name;
  for (const auto& schedule : fetch_schedules(context, options.sweep, &name)) {
    if (schedule.candidate_name() != options.candidate) continue;
    if (schedule.widths_json().empty()) {
      throw Failure(Exit::kConflict,
                    fmt::format("'{}' has no widths: it is {} ({})", options.candidate,
                                schedule.state(), schedule.message()));
    }
    Json json = schedule_json(schedule);
    json["sweep"] = name;
    const Printer out = context.printer();
    if (options.to.empty()) return out.document(json);
    require(write_file_atomic(options.to, json.dump(2) + "\n"));
    return out.note(fmt::format("wrote {}", options.to));
  }
  throw Failure(
      Exit::kNotFound,
      fmt::format("'{}' of {} is no candidate with widths that are cut from a measurement "
                  "(`tailor schedule show {}`)",
                  options.candidate, name, options.sweep));
}

/// The widths of an exported schedule as a [[candidate]] of a sweep file. They are solved again
/// from what the solver was given: a file that was changed is refused.
void apply_schedule(Context& context, const ScheduleOptions& options) {
  const Json json = require(parse_ordered_json(require(read_file(options.file, kExportBytesMax))));
  const auto wrong = [&](const std::string& what) {
    throw Failure(Exit::kUsage, fmt::format("{}: {}", options.file, what));
  };
  if (!json.is_object() || text_under(json, "format") != "tailor-schedule") {
    wrong("no schedule; give a file that `tailor schedule export` wrote");
  }
  for (const char* key : {"problem", "widths"}) {
    if (!json.contains(key) || json[key].is_null()) wrong(fmt::format("\"{}\" is missing", key));
  }
  if (!json["widths"].is_array()) wrong("\"widths\" is no list of lists");
  const auto problem = require(geometry::parse_width_problem(json["problem"].dump()));
  const auto solution = require(geometry::solve_width_problem(problem));
  if (!solution.integers) wrong("its \"problem\" asks for no whole widths");
  std::vector<std::int64_t> widths;
  for (const auto& layer : json["widths"]) {
    if (!layer.is_array()) wrong("\"widths\" is no list of lists");
    for (const auto& width : layer) {
      if (!width.is_number_integer()) wrong("\"widths\" holds what is no whole number");
      widths.push_back(width.get<std::int64_t>());
    }
  }
  std::int64_t sum = 0;
  for (const std::int64_t width : widths) sum += width;
  std::int64_t solved = 0;
  for (const std::int64_t width : solution.integers->widths) solved += width;
  const bool same_order =
      widths.size() != solution.integers->widths.size() || widths == solution.integers->widths;
  if (sum != solved || !same_order) {
    wrong("its widths are not those that its problem has: one of them was changed");
  }
  const std::string name = options.name.empty()
                               ? fmt::format("{}, applied", text_under(json, "candidate"))
                               : options.name;
  Json quoted = name;
  const std::string toml =
      fmt::format("[[candidate]]\nname = {}\nwidths = {}\n", quoted.dump(), json["widths"].dump());
  const Printer out = context.printer();
  if (out.json()) {
    return out.document({{"name", name}, {"widths", json["widths"]}, {"toml", toml}});
  }
  out.line(toml.substr(0, toml.size() - 1));
}

}  // namespace

void add_schedule(CLI::App& app, Context& context) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = add_command(
      app, "schedule", "Widths that are cut from measurements: shown, written out, used again.",
      "  tailor schedule show last\n"
      "  tailor schedule export last \"topology, hyperbolic\" --to schedule.json\n"
      "  tailor schedule apply schedule.json >> sweep.toml");
  command->require_subcommand(1);
  CLI::App* show =
      add_command(*command, "show", "Of each candidate: what it waits for, its widths.",
                  "  tailor schedule show last");
  show->add_option("SWEEP", options->sweep, "sweep id or name")->required();
  show->callback([&context, options] { show_schedules(context, *options); });
  CLI::App* write = add_command(*command, "export", "All of one schedule as JSON.",
                                "  tailor schedule export last shaped --to schedule.json");
  write->add_option("SWEEP", options->sweep, "sweep id or name")->required();
  write->add_option("CANDIDATE", options->candidate, "its name")->required();
  write->add_option("--to", options->to, "a file (stdout)");
  write->callback([&context, options] { export_schedule(context, *options); });
  CLI::App* apply = add_command(*command, "apply", "An exported schedule as a [[candidate]].",
                                "  tailor schedule apply schedule.json >> sweep.toml");
  apply->add_option("FILE", options->file, "what export wrote")->required();
  apply->add_option("--name", options->name, "of the candidate");
  apply->callback([&context, options] { apply_schedule(context, *options); });
}

}  // namespace tailor::client
