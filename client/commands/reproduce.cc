// tailor reproduce: writes the directory that runs a trial again, and what it ran with, so that it
// can be told whether the second run is the first one.
#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

struct ReproduceOptions {
  std::string trial, to;
  std::uint32_t attempt = 0;
};

/// A folder that is new or empty: nothing of another trial may lie in it.
std::filesystem::path make_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (!failed && !std::filesystem::is_empty(path, failed)) {
    throw Failure(Exit::kConflict,
                  fmt::format("{} is not empty; give a new folder with --to", path));
  }
  if (failed) {
    throw Failure(Exit::kUsage, fmt::format("{}: {}", path, failed.message()));
  }
  return path;
}

/// What the first run ran with, and what came out.
Json provenance(const v1::GetTrialSpecResponse& answer) {
  Json json;
  json["format"] = "tailor-reproduce";
  json["version"] = 1;
  json["sweep"] = answer.sweep_name();
  json["base_dir"] = answer.base_dir();
  json["candidate"] = answer.candidate().name();
  json["point"] = parse_ordered_json(answer.candidate().point_json())
                      .value_or(Json(answer.candidate().point_json()));
  json["seed"] = answer.trial().seed();
  json["trial"] = answer.trial().id();
  json["state"] = state_name(answer.trial().state());
  json["objective"] =
      answer.trial().has_objective() ? json_number(answer.trial().objective()) : Json();
  json["values"] = to_json(answer.trial())["values"];
  if (!answer.has_attempt()) {
    json["attempt"] = nullptr;
    return json;
  }
  Json started = parse_ordered_json(answer.started_json()).value_or(Json::object());
  const auto said = [&](const char* key) { return started.contains(key) ? started[key] : Json(); };
  json["attempt"] = {{"number", answer.attempt().number()},
                     {"worker", answer.attempt().worker_name()},
                     {"worker_host", answer.worker_host()},
                     {"slots", answer.attempt().slots_size()},
                     {"program_version", said("version")},
                     {"host", said("host")},
                     {"device", said("device")},
                     {"data_hash", said("data_hash")},
                     {"resumed_step", answer.attempt().resumed_step()}};
  return json;
}

void run_reproduce(Context& context, const ReproduceOptions& options) {
  v1::GetTrialSpecRequest request;
  request.set_trial(trial_id(options.trial));
  request.set_attempt(options.attempt);
  const auto answer = context.call<v1::GetTrialSpecRequest, v1::GetTrialSpecResponse>(
      &v1::CoordinatorService::Stub::GetTrialSpec, request);
  const std::string to =
      options.to.empty() ? "reproduce-" + trial_text(request.trial()) : options.to;
  const std::filesystem::path folder = make_folder(to);
  const Json about = provenance(answer);
  require(write_file_atomic(folder / "sweep.toml", answer.sweep_toml()));
  require(write_file_atomic(folder / "reproduce.json", about.dump(2) + "\n"));
  // Last: a folder with a spec.json is one that can be run.
  require(write_file_atomic(folder / "spec.json", answer.spec_json()));
  const Printer out = context.printer();
  if (out.json()) {
    Json json = about;
    json["folder"] = std::filesystem::absolute(folder).string();
    return out.document(json);
  }
  out.line(fmt::format("wrote {}: `tailor-trainer run {}` trains {} of {} again, seed {}",
                       folder.string(), folder.string(), answer.candidate().name(),
                       answer.sweep_name(), answer.trial().seed()));
  if (!answer.has_attempt()) {
    out.note("no attempt was made yet: the version, the data and the hardware are not known");
    return;
  }
  const Json& attempt = about.at("attempt");
  const auto text = [&](const char* key) {
    return attempt.at(key).is_string() && !attempt.at(key).get<std::string>().empty()
               ? attempt.at(key).get<std::string>()
               : std::string("unknown");
  };
  out.note(fmt::format(
      "it ran with version {} on {} ({}), data {}; other versions, data or hardware may give other "
      "numbers (reproduce.json has them all)",
      text("program_version"), text("device"), text("host"), text("data_hash")));
  if (answer.attempt().resumed_step() > 0) {
    out.note(
        fmt::format("attempt {} had resumed at step {}; this runs from the beginning, which "
                    "gives the same on one device",
                    answer.attempt().number(), answer.attempt().resumed_step()));
  }
}

}  // namespace

void add_reproduce(CLI::App& app, Context& context) {
  auto options = std::make_shared<ReproduceOptions>();
  CLI::App* command = add_command(
      app, "reproduce", "Writes the directory that runs a trial again with `tailor-trainer run`.",
      "  tailor reproduce t41\n  tailor reproduce t41 --to again --attempt 2");
  command->add_option("TRIAL", options->trial, "trial id")->required();
  command->add_option("--to", options->to, "the folder, new or empty (reproduce-TRIAL)");
  command->add_option("--attempt", options->attempt,
                      "whose version and hardware are noted (0 = the last)");
  command->callback([&context, options] { run_reproduce(context, *options); });
}

}  // namespace tailor::client
