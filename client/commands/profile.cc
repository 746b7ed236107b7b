// tailor profile: the work profile of a trial, layer by layer.
#include <fmt/format.h>

#include <map>
#include <set>

#include "base/atomic_file.h"
#include "client/format.h"
#include "client/svg.h"
#include "client/table.h"

namespace tailor::client {
namespace {

/// A panel a statistic, a curve a geometry; whole layers only.
std::string profile_svg(const std::string& title, const v1::WorkProfile& profile) {
  std::map<std::string, std::map<std::string, std::map<int, SvgPoint>>> points;
  for (const auto& entry : profile.entries()) {
    if (entry.sub_block() >= 0 || entry.statistic() == "two_nn" ||
        entry.statistic() == "levina_bickel") {
      continue;
    }
    SvgPoint& point = points[entry.statistic()][entry.geometry()][entry.layer()];
    point = {static_cast<double>(entry.layer()), entry.value(), std::nullopt};
    if (entry.has_standard_error()) point.error = entry.standard_error();
  }
  std::vector<SvgPanel> panels;
  for (const auto& [statistic, geometries] : points) {
    SvgPanel& panel = panels.emplace_back(SvgPanel{statistic, {}});
    for (const auto& [geometry, layers] : geometries) {
      SvgCurve& curve = panel.curves.emplace_back(SvgCurve{geometry, {}});
      for (const auto& [layer, point] : layers) curve.points.push_back(point);
    }
  }
  if (panels.empty()) {
    throw Failure(Exit::kNotFound,
                  "there is nothing to draw: the profile has no work of a whole layer");
  }
  return svg_panels(title, "layer (bars: standard errors)", panels);
}

}  // namespace

void add_profile(CLI::App& app, Context& context) {
  auto trial = std::make_shared<std::string>();
  auto picture = std::make_shared<std::string>();
  CLI::App* command = add_command(
      app, "profile", "Shows how each layer of a trained trial moves its token cloud.",
      "  tailor profile t41\n  tailor profile t41 --json\n  tailor profile t41 --svg work.svg");
  command->add_option("TRIAL", *trial, "trial id")->required();
  command->add_option("--svg", *picture, "also draw it into this file");
  command->callback([&context, trial, picture] {
    v1::GetTrialRequest request;
    request.set_trial(trial_id(*trial));
    const auto answer = context.call<v1::GetTrialRequest, v1::GetTrialResponse>(
        &v1::CoordinatorService::Stub::GetTrial, request);
    const Printer out = context.printer();
    const v1::WorkProfile& profile = answer.work_profile();
    if (profile.entries_size() == 0 && !answer.measure_failure().empty()) {
      throw Failure(Exit::kNotFound,
                    fmt::format("{} could not be measured: {}", *trial, answer.measure_failure()));
    }
    if (profile.entries_size() == 0) {
      throw Failure(
          Exit::kNotFound,
          fmt::format("{} has no work profile; set `geometry` in [evaluate] of its sweep file "
                      "and let it finish",
                      *trial));
    }
    if (!picture->empty()) {
      const std::string title =
          fmt::format("Geometric work by layer of {} ({})", *trial, answer.candidate().name());
      auto file = require(AtomicFile::create(*picture));
      require(file.write(profile_svg(title, profile)));
      require(file.commit());
      if (answer.profile_more()) out.note("the profile has more layers than are drawn");
    }
    if (out.json()) {
      Json json;
      json["trial"] = request.trial();
      const Json whole = to_json(profile);  // named: loops do not keep temporaries alive
      json["profile"] = whole["entries"];
      for (const auto& [key, value] : whole.items()) {
        if (key != "entries") json[key] = value;
      }
      return out.document(json);
    }
    std::map<std::pair<int, int>, std::map<std::string, std::string>> cells;
    std::set<std::string> names;
    for (const auto& entry : profile.entries()) {
      const std::string name = entry.geometry() + " " + entry.statistic();
      names.insert(name);
      cells[{entry.layer(), entry.sub_block()}][name] =
          entry.has_standard_error()
              ? fmt::format("{:.4g} ({:.1g})", entry.value(), entry.standard_error())
              : fmt::format("{:.4g} (-)", entry.value());
    }
    std::vector<Column> columns = {{"LAYER", Align::kRight}, {"SUB-MLP", Align::kRight}};
    for (const auto& name : names) columns.push_back({name + " (SE)", Align::kRight});
    std::vector<std::vector<std::string>> rows;
    for (auto& [key, values] : cells) {
      std::vector<std::string> row = {std::to_string(key.first),
                                      key.second < 0 ? "all" : std::to_string(key.second)};
      for (const auto& name : names) row.push_back(values.count(name) > 0 ? values[name] : "-");
      rows.push_back(std::move(row));
    }
    out.table(columns, rows);
    out.note(fmt::format(
        "at step {}: {}{} subsamples of {} tokens{}{}{}", profile.step(), profile.subsamples(),
        profile.subsamples_asked() > profile.subsamples()
            ? fmt::format(" of {}", profile.subsamples_asked())
            : "",
        profile.tokens(),
        profile.linear_tokens() > 0 ? fmt::format(" ({} for shift)", profile.linear_tokens()) : "",
        profile.dropped() > 0
            ? fmt::format("; {} tokens with a zero vector left out", profile.dropped())
            : "",
        profile.positions() > 0 ? fmt::format(", from {} tokens of {}", profile.positions(),
                                              profile.sequences_given()
                                                  ? fmt::format("{} sequences", profile.sequences())
                                                  : "unknown sequences, each taken as one")
                                : ""));
    if (!profile.no_error().empty()) {
      out.note("tailor: there are entries without a standard error: " + profile.no_error());
    }
  });
}

}  // namespace tailor::client
