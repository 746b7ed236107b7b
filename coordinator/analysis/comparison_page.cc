#include "coordinator/analysis/comparison_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/text.h"

namespace tailor::analysis {
namespace {

struct OrderName {
  std::string_view name;
  RowOrder order;
};
constexpr std::array kOrders = {OrderName{"candidate", RowOrder::kCandidate},
                                OrderName{"name", RowOrder::kName},
                                OrderName{"difference", RowOrder::kDifference},
                                OrderName{"mean", RowOrder::kMean}, OrderName{"p", RowOrder::kP}};

std::optional<double> key_of(const ComparisonRow& row, RowOrder order) {
  switch (order) {
    case RowOrder::kDifference:
      return row.paired.n > 0 ? std::optional(row.paired.mean) : std::nullopt;
    case RowOrder::kMean:
      return row.mean;
    case RowOrder::kP:
      return row.paired.sign_flip ? std::optional(row.paired.sign_flip->p) : std::nullopt;
    case RowOrder::kCandidate:
    case RowOrder::kName:
      break;
  }
  return static_cast<double>(row.candidate);
}

/// Whether `a` stands before `b`; `descending` turns values round, never "missing comes last".
bool before(const ComparisonRow& a, const ComparisonRow& b, RowOrder order, bool descending) {
  if (order == RowOrder::kName) return descending ? b.name < a.name : a.name < b.name;
  const auto x = key_of(a, order);
  const auto y = key_of(b, order);
  if (!x || !y) return x.has_value() && !y.has_value();
  return descending ? *y < *x : *x < *y;
}

/// Bytes of a row as JSON, at most: 24 digits a number, and its frame with all names of its fields.
std::size_t bytes_of(const ComparisonRow& row, bool differences) {
  constexpr std::size_t kFrame = 1'900;
  std::size_t bytes = kFrame + 2 * row.name.size() + row.note.size() + row.verdict.text.size();
  if (!differences) return bytes;
  bytes += 25 * row.differences.size();
  for (std::uint64_t seed : row.seeds) {
    do {
      ++bytes;
      seed /= 10;
    } while (seed > 0);
    ++bytes;
  }
  return bytes;
}

RowDetail detail_of(const ComparisonRow& row, const ComparisonRow* ratio_to) {
  RowDetail detail;
  detail.bca = bca_interval(row.differences);
  const std::size_t n = row.differences.size();
  if (!detail.bca && n > 0) {
    detail.bca_note = n < kBcaMin ? fmt::format("a bootstrap interval needs {} pairs", kBcaMin)
                                  : "no spread to resample, or beyond a double's range";
  }
  if (ratio_to == nullptr || n == 0) return detail;
  if (row.status == RowStatus::kIncomplete || ratio_to->status == RowStatus::kIncomplete) {
    detail.ratio.emplace().refused = "refused: a seed failed or was stopped early";
    return detail;
  }
  // Over the seeds that both have; both lists ascend.
  std::vector<double> mine, theirs;
  for (std::size_t i = 0, k = 0; i < n && k < ratio_to->seeds.size();) {
    if (row.seeds[i] == ratio_to->seeds[k]) {
      mine.push_back(row.differences[i++]);
      theirs.push_back(ratio_to->differences[k++]);
    } else {
      ++(row.seeds[i] < ratio_to->seeds[k] ? i : k);
    }
  }
  detail.ratio = fieller_ratio(mine, theirs);
  return detail;
}

}  // namespace

Result<RowOrder> parse_row_order(std::string_view name) {
  if (name.empty()) return RowOrder::kCandidate;
  for (const OrderName& entry : kOrders) {
    if (entry.name == name) return entry.order;
  }
  return error(Code::kInvalidArgument,
               fmt::format("cannot order by \"{}\"; allowed: candidate, name, difference, mean, p",
                           name.substr(0, 80)));
}

Result<std::optional<std::uint32_t>> find_ratio(const ComparisonTable& table,
                                                std::string_view name) {
  if (name.empty()) return std::optional<std::uint32_t>();
  std::vector<std::string_view> names;
  for (const ComparisonRow& row : table.rows) {
    if (&row == &table.rows.front()) continue;
    if (row.name == name) return std::optional(row.candidate);
    names.push_back(row.name);
  }
  if (!table.rows.empty() && table.rows.front().name == name) {
    return error(
        Code::kInvalidArgument,
        fmt::format("\"{}\" is the baseline, whose gain is 0: nothing can be divided by it", name));
  }
  const std::string near = nearest_name(name, names);
  return error(Code::kInvalidArgument,
               fmt::format("no candidate is called \"{}\"{}", name.substr(0, 200),
                           near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

ComparisonPage page_of(const ComparisonTable& table, const PageRequest& request) {
  ComparisonPage page;
  page.total = table.rows.size();
  page.differences = request.differences;
  std::vector<const ComparisonRow*> order;
  order.reserve(table.rows.size());
  for (const ComparisonRow& row : table.rows) order.push_back(&row);
  if (order.size() > 1 && (request.order != RowOrder::kCandidate || request.descending)) {
    std::stable_sort(order.begin() + 1, order.end(),
                     [&](const ComparisonRow* a, const ComparisonRow* b) {
                       return before(*a, *b, request.order, request.descending);
                     });
  }
  std::size_t bytes = 0;
  std::uint64_t i = request.offset;
  for (; i < order.size(); ++i) {
    if (request.limit > 0 && page.rows.size() >= request.limit) break;
    bytes += bytes_of(*order[i], request.differences);
    if (bytes > request.bytes_max && !page.rows.empty()) break;
    page.rows.push_back(order[i]);
  }
  page.next_offset = i < order.size() ? i : 0;
  const ComparisonRow* ratio_to = nullptr;
  for (const ComparisonRow& row : table.rows) {
    if (request.ratio_to && row.candidate == *request.ratio_to) ratio_to = &row;
  }
  if (ratio_to != nullptr) page.ratio_to = ratio_to->name;
  for (const ComparisonRow* row : page.rows) page.details.push_back(detail_of(*row, ratio_to));
  return page;
}

}  // namespace tailor::analysis
