// Pages of a comparison: sorted, cut by rows and by bytes, so that no answer grows with the sweep.
// What costs much a row (bootstrap intervals, ratios) is computed for the rows of a page alone.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/analysis/bca.h"
#include "coordinator/analysis/comparison.h"
#include "coordinator/analysis/fieller.h"

namespace tailor::analysis {

/// How a page of a table is ordered; rows without the value come last, the baseline always first.
enum class RowOrder { kCandidate, kName, kDifference, kMean, kP };
/// "candidate" (and ""), "name", "difference", "mean", "p". Errors: kInvalidArgument.
Result<RowOrder> parse_row_order(std::string_view name);

/// Less than the 100 kB that a page may have: names may need escapes, a reply has a frame.
inline constexpr std::size_t kPageBytesMax = 90'000;

struct PageRequest {
  RowOrder order = RowOrder::kCandidate;
  bool descending = false;
  std::uint64_t offset = 0;
  std::uint64_t limit = 0;  ///< rows at most; 0 = as many as fit
  bool differences = true;  ///< whether each row carries its seeds and differences
  /// The candidate that gains are divided by (`find_ratio`).
  std::optional<std::uint32_t> ratio_to;
  std::size_t bytes_max = kPageBytesMax;  ///< of the page as JSON; one row always fits
};

/// What a row of a page has beside the table's.
struct RowDetail {
  std::optional<BcaInterval> bca;  ///< of its differences
  std::string bca_note;            ///< why there is none, "" = there is, or no pair
  std::optional<Ratio> ratio;      ///< of its gain to that of `ratio_to`; unset when none is asked
};

struct ComparisonPage {
  std::vector<const ComparisonRow*> rows;  ///< of the table
  std::vector<RowDetail> details;          ///< one a row
  std::string ratio_to;                    ///< name of the candidate, "" = none
  std::uint64_t total = 0;
  std::uint64_t next_offset = 0;  ///< 0 = this page is the last
  bool differences = true;
};

/// The candidate called `name` for `PageRequest::ratio_to`; "" = none. Errors: kInvalidArgument for
/// an unknown name and for the baseline, whose gain is 0.
Result<std::optional<std::uint32_t>> find_ratio(const ComparisonTable& table,
                                                std::string_view name);

/// Cost: of sorting all rows; of `bca_interval` for each row of the page.
ComparisonPage page_of(const ComparisonTable& table, const PageRequest& request);

}  // namespace tailor::analysis
