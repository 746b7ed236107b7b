// tailor compare: every candidate against the baseline, paired by seed, with intervals.
#include <fmt/format.h>

#include "base/text.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {

void add_compare(CLI::App& app, Context& context) {
  struct Options {
    std::string sweep, baseline, objective;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "compare",
      "The paired answer of a sweep: difference to the baseline over seeds, with its interval.",
      "  tailor compare last\n  tailor compare s3 --baseline \"hourglass K=4\"\n  tailor compare "
      "s3 --json");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
  command->add_option("--baseline", options->baseline,
                      "candidate to compare with (default: the sweep's)");
  command->add_option("--objective", options->objective,
                      "metric of the end report (default: validation_loss)");
  command->callback([&context, options] {
    v1::CompareRequest request;
    *request.mutable_sweep() = sweep_ref(options->sweep);
    request.set_baseline(options->baseline);
    request.set_objective(options->objective);
    const auto answer = context.call<v1::CompareRequest, v1::CompareResponse>(
        &v1::CoordinatorService::Stub::Compare, request);
    const Printer out = context.printer();
    if (out.json()) return out.document(to_json(answer));
    const bool show_holm = answer.rows_size() > 2;
    std::vector<Column> columns = {
        {"CANDIDATE"},           {"BODY", Align::kRight},       {"SEEDS", Align::kRight},
        {"LOSS", Align::kRight}, {"DIFFERENCE", Align::kRight}, {"95% INTERVAL", Align::kRight},
        {"P", Align::kRight}};
    if (show_holm) columns.push_back({"P HOLM", Align::kRight});
    columns.push_back({"TOKENS/S", Align::kRight});
    std::vector<std::vector<std::string>> rows;
    std::uint32_t failed = 0, missing = 0;
    for (const auto& r : answer.rows()) {
      const bool is_baseline = r.name() == answer.baseline();
      std::vector<std::string> row = {
          r.name() + (is_baseline ? " (baseline)" : ""),
          with_thousands(r.parameters_body()),
          std::to_string(r.seeds()),
          r.has_mean() ? fixed(r.mean(), 4) : "-",
          is_baseline || !r.has_difference() ? "-" : signed_fixed(r.difference(), 4),
          is_baseline || !r.has_ci_low()
              ? "-"
              : fmt::format("[{:+.4f}, {:+.4f}]", r.ci_low(), r.ci_high()),
          is_baseline || !r.has_p_sign_flip() ? "-" : fmt::format("{:.3g}", r.p_sign_flip())};
      if (show_holm)
        row.push_back(is_baseline || !r.has_p_holm() ? "-" : fmt::format("{:.3g}", r.p_holm()));
      row.push_back(r.has_tokens_per_s() ? short_count(r.tokens_per_s()) : "-");
      rows.push_back(std::move(row));
      failed += r.failed();
      missing += r.missing();
    }
    out.table(columns, rows);
    out.note(fmt::format(
        "loss: mean validation loss in nats a token; difference: mean over seeds of candidate "
        "minus "
        "\"{}\", paired by seed; interval: Student t; p: exact sign-flip test, which so few seeds "
        "cannot take below {:.3g}",
        answer.baseline(), answer.smallest_p()));
    if (failed > 0)
      out.note(fmt::format("{} trials failed or diverged and are in no pair", failed));
    if (missing > 0) out.note(fmt::format("{} pairs are not finished", missing));
  });
}

}  // namespace tailor::client
