// tailor scaling: laws over sizes and the compute-efficiency gain of a sweep with [scaling].
#include <fmt/format.h>

#include "base/text.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

std::string estimate_text(const v1::ScalingEstimate& e, int digits) {
  std::string text = fmt::format("{:.{}g}", e.value(), digits);
  if (e.has_low()) text += fmt::format(" [{:.{}g}, {:.{}g}]", e.low(), digits, e.high(), digits);
  return text;
}

std::string gain_text(const v1::ScalingGain& gain) {
  if (!gain.has_gain()) return "-";
  std::string text = fmt::format("{:+.1f} %", 100 * gain.gain().value());
  if (gain.gain().has_low()) {
    text +=
        fmt::format(" [{:+.1f} %, {:+.1f} %]", 100 * gain.gain().low(), 100 * gain.gain().high());
  }
  return text + (gain.extrapolated() ? " *" : "");
}

std::string seeds_cell(const v1::ScalingSize& size, std::uint32_t seeds) {
  std::string text = fmt::format("{}/{}", size.finished(), seeds);
  if (size.failed() > 0) text += fmt::format(", {} failed", size.failed());
  if (size.stopped() > 0) text += fmt::format(", {} stopped", size.stopped());
  if (size.lost() > 0) text += fmt::format(", {} lost", size.lost());
  return text;
}

void print_sizes(const Printer& out, const v1::CompareScalingResponse& answer) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& family : answer.families()) {
    for (const auto& size : family.sizes()) {
      std::string gain = "-";
      for (const auto& g : family.gains()) {
        if (g.at() == size.size()) gain = gain_text(g);
      }
      rows.push_back(
          {family.name(), size.size(), with_thousands(size.parameters_body()),
           fmt::format("{:.2e}", size.flops()), seeds_cell(size, answer.seeds()),
           size.has_mean() ? fixed(size.mean(), 4) : "-", size.has_sd() ? fixed(size.sd(), 4) : "-",
           size.has_difference() ? signed_fixed(size.difference(), 4) : "-",
           size.has_ci_low() ? fmt::format("[{:+.4f}, {:+.4f}]", size.ci_low(), size.ci_high())
                             : "-",
           gain});
    }
  }
  out.table({{"FAMILY"},
             {"SIZE"},
             {"BODY", Align::kRight},
             {"FLOPS", Align::kRight},
             {"SEEDS", Align::kRight},
             {"LOSS", Align::kRight},
             {"SD", Align::kRight},
             {"DIFFERENCE", Align::kRight},
             {"95% INTERVAL", Align::kRight},
             {"COMPUTE GAIN", Align::kRight}},
            rows);
}

void print_laws(const Printer& out, const v1::CompareScalingResponse& answer) {
  for (const auto& family : answer.families()) {
    for (const bool compute : {false, true}) {
      if (compute ? !family.has_in_compute() : !family.has_in_parameters()) continue;
      const auto& law = compute ? family.in_compute() : family.in_parameters();
      out.note(fmt::format(
          "{}: L({}) = E + A ({} / {:.3g})^-alpha with E = {}, A = {}, alpha = {} (n = {} seeds, "
          "{} "
          "sizes{}){}{}",
          family.name(), compute ? "C" : "N", compute ? "C" : "N", law.unit(),
          estimate_text(law.irreducible(), 5), estimate_text(law.coefficient(), 4),
          estimate_text(law.exponent(), 3), family.seeds_size(), family.sizes_size(),
          family.sizes_size() > 3 ? fmt::format(", off by {:.2g} RMS", law.rms_residual()) : "",
          law.note().empty() ? "" : "; ", law.note()));
    }
    if (!family.note().empty()) out.note(fmt::format("{}: {}", family.name(), family.note()));
    if (!family.text().empty()) out.note(fmt::format("{}: {}", family.name(), family.text()));
  }
}

}  // namespace

void add_scaling(CLI::App& app, Context& context) {
  struct ScalingOptions {
    std::string sweep, baseline, objective;
  };
  auto options = std::make_shared<ScalingOptions>();
  CLI::App* command = add_command(
      app, "scaling",
      "Laws over sizes of each family of a sweep with [scaling], and its compute-efficiency gain.",
      "  tailor scaling last\n  tailor scaling s3 --baseline conventional --json");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
  command->add_option("--baseline", options->baseline, "family (default: the sweep file's)");
  command->add_option("--objective", options->objective,
                      "metric of the end report (default: validation_loss)");
  command->callback([&context, options] {
    v1::CompareScalingRequest request;
    *request.mutable_sweep() = sweep_ref(options->sweep);
    request.set_baseline(options->baseline);
    request.set_objective(options->objective);
    const auto answer = context.call<v1::CompareScalingRequest, v1::CompareScalingResponse>(
        &v1::CoordinatorService::Stub::CompareScaling, request);
    const Printer out = context.printer();
    if (out.json()) return out.document(to_json(answer));
    print_sizes(out, answer);
    print_laws(out, answer);
    out.note(fmt::format(
        "difference: of family minus \"{}\" at that size, paired by seed, Student t; compute gain: "
        "how much more compute \"{}\" needs for the loss reached there{}",
        answer.baseline(), answer.baseline(), ", * = read beyond its sizes"));
    for (const std::string& note : answer.notes()) out.note(note);
  });
}

}  // namespace tailor::client
