// tailor compare: every candidate against the baseline, paired by seed, with intervals.
#include <fmt/format.h>

#include "base/text.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

struct CompareOptions {
  std::string sweep, baseline, objective, order, ratio_to;
  bool descending = false;
  std::uint64_t offset = 0;
  std::uint64_t limit = 0;  // 0 = all
};

v1::CompareResponse page_of(Context& context, const CompareOptions& options, std::uint64_t offset,
                            std::uint64_t limit) {
  v1::CompareRequest request;
  *request.mutable_sweep() = sweep_ref(options.sweep);
  request.set_baseline(options.baseline);
  request.set_objective(options.objective);
  request.set_order(options.order);
  request.set_ratio_to(options.ratio_to);
  request.set_descending(options.descending);
  request.set_offset(offset);
  request.set_limit(static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, 1'000'000)));
  return context.call<v1::CompareRequest, v1::CompareResponse>(
      &v1::CoordinatorService::Stub::Compare, request);
}

/// The rows that were asked for, page by page. Begins again when the sweep went on in between, so
/// that all rows are of one table; after some tries what came together is given, which `torn` says.
v1::CompareResponse read_rows(Context& context, const CompareOptions& options, bool* torn) {
  constexpr int kTries = 5;
  v1::CompareResponse all;
  for (int i = 0; i < kTries; ++i) {
    all = page_of(context, options, options.offset, options.limit);
    *torn = false;
    while (all.next_offset() != 0) {
      const auto got = static_cast<std::uint64_t>(all.rows_size());
      if (options.limit > 0 && got >= options.limit) break;
      const std::uint64_t left = options.limit == 0 ? 0 : options.limit - got;
      v1::CompareResponse page = page_of(context, options, all.next_offset(), left);
      *torn = *torn || page.as_of() != all.as_of();
      for (auto& row : *page.mutable_rows()) *all.add_rows() = std::move(row);
      all.set_next_offset(page.next_offset());
    }
    if (!*torn) break;
  }
  return all;
}

std::string p_text(const v1::Comparison& row) {
  if (!row.has_p_sign_flip()) return "-";
  return row.p_draws() == 0
             ? fmt::format("{:.3g}", row.p_sign_flip())
             : fmt::format("{:.3g} +-{:.1g}", row.p_sign_flip(), row.p_standard_error());
}

std::string ratio_text(const v1::Comparison& row) {
  if (row.has_ratio()) {
    return fmt::format("{:.3g} [{:.3g}, {:.3g}]", row.ratio(), row.ratio_low(), row.ratio_high());
  }
  return row.ratio_refused().empty() ? "-" : "refused";
}

/// What stands beside a row's verdict: the other tests, the bootstrap, the noise of the text.
std::string tests_text(const v1::Comparison& r) {
  std::vector<std::string> parts;
  if (r.has_t()) parts.push_back(fmt::format("t = {:.4g}, p = {:.3g}", r.t(), r.p_t()));
  if (r.has_p_sign_flip()) parts.push_back("sign-flip p = " + p_text(r));
  if (r.has_p_sign()) parts.push_back(fmt::format("sign test p = {:.3g}", r.p_sign()));
  if (r.has_p_wilcoxon()) {
    parts.push_back(fmt::format("Wilcoxon p = {:.3g}{}", r.p_wilcoxon(),
                                r.wilcoxon_exact() ? "" : " (normal approximation)"));
  }
  if (r.has_bca_low()) {
    parts.push_back(fmt::format("BCa 95 % [{:+.4g}, {:+.4g}]", r.bca_low(), r.bca_high()));
  } else if (!r.bca_note().empty()) {
    parts.push_back("no BCa: " + r.bca_note());
  }
  if (r.has_detectable()) {
    parts.push_back(
        fmt::format("n = {} finds {:.4g} with 80 % power at this SD", r.seeds(), r.detectable()));
  }
  if (r.has_difference_evaluation_se_max()) {
    parts.push_back(fmt::format("noise of the evaluation text {:.2g} at most (SE)",
                                r.difference_evaluation_se_max()));
  }
  if (!r.ratio_refused().empty()) parts.push_back("gain ratio " + r.ratio_refused());
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// Rows that are put into words: the primary one and as many as people read.
constexpr int kVerdictsMax = 12;

void print_verdicts(const Printer& out, const v1::CompareResponse& answer) {
  int shown = 0, left = 0;
  for (const auto& r : answer.rows()) {
    if (r.verdict_text().empty()) continue;
    if (!r.primary() && shown >= kVerdictsMax) {
      ++left;
      continue;
    }
    ++shown;
    out.note(fmt::format("{}: {}", r.name(), r.verdict_text()));
    if (const std::string tests = tests_text(r); !tests.empty()) out.note("    " + tests);
  }
  if (left > 0) out.note(fmt::format("{} more verdicts: --json, or --order and --limit", left));
}

std::vector<std::string> cells_of(const v1::Comparison& r, const v1::CompareResponse& answer,
                                  bool show_holm) {
  const bool is_baseline = r.name() == answer.baseline();
  const bool is_best = answer.has_best() && r.candidate() == answer.best();
  std::vector<std::string> row = {
      r.name() + (is_baseline ? " (baseline)" : "") + (r.primary() ? " (primary)" : "") +
          (is_best ? " (best)" : ""),
      with_thousands(r.parameters_body()),
      // All seeds, or how many of them; an incomplete candidate is marked.
      fmt::format("{}/{}{}", r.seeds(), answer.seeds(), r.status() == "incomplete" ? " !" : ""),
      r.has_mean() ? fixed(r.mean(), 4) : "-",
      is_baseline || !r.has_difference() ? "-" : signed_fixed(r.difference(), 4),
      is_baseline || !r.has_ci_low() ? "-"
                                     : fmt::format("[{:+.4f}, {:+.4f}]", r.ci_low(), r.ci_high()),
      is_baseline ? "-" : p_text(r)};
  if (show_holm) {
    row.push_back(is_baseline || !r.has_p_holm() ? "-" : fmt::format("{:.3g}", r.p_holm()));
    row.push_back(is_baseline || !r.has_p_westfall_young()
                      ? "-"
                      : fmt::format("{:.3g}", r.p_westfall_young()));
  }
  if (!answer.ratio_to().empty()) row.push_back(ratio_text(r));
  row.push_back(r.has_tokens_per_s() ? short_count(r.tokens_per_s()) : "-");
  return row;
}

void print_comparison(const Printer& out, const v1::CompareResponse& answer) {
  const bool show_holm = answer.total() > 2;
  bool show_notes = false;
  for (const auto& r : answer.rows()) show_notes = show_notes || !r.note().empty();
  std::vector<Column> columns = {
      {"CANDIDATE"},           {"BODY", Align::kRight},       {"SEEDS", Align::kRight},
      {"LOSS", Align::kRight}, {"DIFFERENCE", Align::kRight}, {"95% INTERVAL", Align::kRight},
      {"P", Align::kRight}};
  if (show_holm) {
    columns.push_back({"P HOLM", Align::kRight});
    columns.push_back({"P W-Y", Align::kRight});
  }
  if (!answer.ratio_to().empty()) columns.push_back({"GAIN RATIO", Align::kRight});
  columns.push_back({"TOKENS/S", Align::kRight});
  if (show_notes) columns.push_back({"NOTE"});
  std::vector<std::vector<std::string>> rows;
  std::uint64_t missing = 0;
  for (const auto& r : answer.rows()) {
    rows.push_back(cells_of(r, answer, show_holm));
    if (show_notes) rows.back().push_back(r.note());
    missing += r.missing();
  }
  out.table(columns, rows);
  const bool is_loss = answer.objective() == "validation_loss";
  out.note(fmt::format(
      "loss: mean {}; difference: mean over seeds of candidate minus \"{}\", paired by seed; "
      "interval: Student t; p: two-sided sign-flip test, which with the pairs there are cannot go "
      "below {:.3g}",
      is_loss ? "validation loss in nats a token" : answer.objective(), answer.baseline(),
      answer.smallest_p()));
  print_verdicts(out, answer);
  for (const std::string& note : answer.notes()) out.note(note);
  if (missing > 0) out.note(fmt::format("{} pairs of the rows shown are missing", missing));
  if (answer.next_offset() > 0) {
    out.note(fmt::format("{} rows of {} are shown; --offset {} goes on", answer.rows_size(),
                         answer.total(), answer.next_offset()));
  }
}

}  // namespace

void add_compare(CLI::App& app, Context& context) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = add_command(
      app, "compare",
      "The paired answer of a sweep: difference to the baseline over seeds, with its interval.",
      "  tailor compare last\n  tailor compare s3 --baseline \"hourglass K=4\"\n  tailor compare "
      "s3 --order difference --limit 20\n  tailor compare s3 --ratio-to \"cosine taper\"\n  "
      "tailor compare s3 --json");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
  command->add_option("--baseline", options->baseline,
                      "candidate to compare with (default: the sweep's)");
  command->add_option("--objective", options->objective,
                      "metric of the end report (default: validation_loss)");
  command->add_option("--ratio-to", options->ratio_to,
                      "candidate whose gain the others' are divided by, with Fieller's interval");
  command->add_option("--order", options->order,
                      "candidate (default), name, difference, mean or p; the baseline stays first");
  command->add_flag("--descending", options->descending, "largest first");
  command->add_option("--limit", options->limit, "rows at most (default: all)");
  command->add_option("--offset", options->offset, "rows to pass over");
  command->callback([&context, options] {
    bool torn = false;
    const v1::CompareResponse answer = read_rows(context, *options, &torn);
    const Printer out = context.printer();
    if (out.json()) {
      out.document(to_json(answer));
    } else {
      print_comparison(out, answer);
    }
    if (torn) {
      out.note("the sweep went on while its rows were read: they are of more than one table");
    }
  });
}

}  // namespace tailor::client
