// Pages of a comparison: sorted, cut by rows and by bytes, so that no answer grows with the sweep.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/analysis/comparison.h"

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
  std::uint64_t limit = 0;                ///< rows at most; 0 = as many as fit
  bool differences = true;                ///< whether each row carries its seeds and differences
  std::size_t bytes_max = kPageBytesMax;  ///< of the page as JSON; one row always fits
};

struct ComparisonPage {
  std::vector<const ComparisonRow*> rows;  ///< of the table
  std::uint64_t total = 0;
  std::uint64_t next_offset = 0;  ///< 0 = this page is the last
  bool differences = true;
};

ComparisonPage page_of(const ComparisonTable& table, const PageRequest& request);

}  // namespace tailor::analysis
