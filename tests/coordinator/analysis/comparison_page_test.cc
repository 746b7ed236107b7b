// Pages of a comparison: order, ends, and that no page grows with the sweep.
#include "coordinator/analysis/comparison_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

using testing::ElementsAre;

/// "base" and `count` candidates with `pairs` differences each; every seventh has none.
ComparisonTable table_of(std::uint32_t count, std::size_t pairs) {
  Rng rng(11);
  const double critical = pairs < 2 ? 0 : critical_t(pairs);
  ComparisonTable table;
  table.baseline = "base";
  for (std::uint32_t i = 0; i <= count; ++i) {
    ComparisonRow row;
    row.candidate = i;
    row.name = i == 0 ? "base" : "candidate " + std::to_string(1000 - i);
    if (i > 0 && i % 7 != 0) {
      for (std::size_t s = 0; s < pairs; ++s) {
        row.seeds.push_back(s + 1);
        row.differences.push_back(rng.normal());
      }
      row.paired = summarize_pairs(row.differences, critical);
      row.mean = 3 + row.paired.mean;
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<std::uint32_t> ids(const ComparisonPage& page) {
  std::vector<std::uint32_t> out;
  for (const ComparisonRow* row : page.rows) out.push_back(row->candidate);
  return out;
}

TEST(ComparisonPage, OffsetAndLimitCutAndTheLastPageSaysSo) {
  const ComparisonTable table = table_of(5, 2);
  PageRequest request;
  request.limit = 4;
  ComparisonPage page = page_of(table, request);
  EXPECT_THAT(ids(page), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(page.total, 6u);
  EXPECT_EQ(page.next_offset, 4u);
  request.offset = page.next_offset;
  page = page_of(table, request);
  EXPECT_THAT(ids(page), ElementsAre(4, 5));
  EXPECT_EQ(page.next_offset, 0u);
  request.offset = 99;
  EXPECT_TRUE(page_of(table, request).rows.empty());
}

TEST(ComparisonPage, TheBaselineComesFirstAndWhatHasNoValueLastInEveryOrder) {
  const ComparisonTable table = table_of(15, 3);
  for (const std::string_view name : {"difference", "mean", "p"}) {
    for (const bool descending : {false, true}) {
      PageRequest request;
      request.order = parse_row_order(name).value();
      request.descending = descending;
      const ComparisonPage page = page_of(table, request);
      ASSERT_EQ(page.rows.size(), 16u);
      EXPECT_EQ(page.rows[0]->candidate, 0u) << name;
      EXPECT_EQ(page.rows[14]->candidate, 7u) << name;
      EXPECT_EQ(page.rows[15]->candidate, 14u) << name;
      for (std::size_t i = 2; i < 14 && name == "difference"; ++i) {
        const double step = page.rows[i]->paired.mean - page.rows[i - 1]->paired.mean;
        EXPECT_GE(descending ? -step : step, 0);
      }
    }
  }
}

TEST(ComparisonPage, OrdersByNameAndRefusesOthersWithWhatIsAllowed) {
  PageRequest request;
  request.order = parse_row_order("name").value();
  EXPECT_THAT(ids(page_of(table_of(3, 1), request)), ElementsAre(0, 3, 2, 1));
  EXPECT_EQ(parse_row_order("").value(), RowOrder::kCandidate);
  EXPECT_THAT(parse_row_order("loss").error().message(), testing::HasSubstr("difference"));
}

TEST(ComparisonPage, APageEndsWhereItsBytesDoAndPagesTogetherAreTheTable) {
  const ComparisonTable table = table_of(600, 25);
  PageRequest request;
  std::uint32_t next = 0;
  std::size_t pages = 0;
  do {
    const ComparisonPage page = page_of(table, request);
    ++pages;
    for (const ComparisonRow* row : page.rows) EXPECT_EQ(row->candidate, next++);
    ASSERT_LE(page.rows.size(), 100u);
    request.offset = page.next_offset;
  } while (request.offset != 0);
  EXPECT_EQ(next, 601u);
  EXPECT_GT(pages, 6u);
}

TEST(ComparisonPage, OneRowAlwaysFits) {
  PageRequest request;
  request.bytes_max = 10;
  EXPECT_EQ(page_of(table_of(3, 1'000), request).rows.size(), 1u);
}

TEST(ComparisonPage, WithoutDifferencesMoreRowsFit) {
  const ComparisonTable table = table_of(600, 25);
  PageRequest request;
  const std::size_t with = page_of(table, request).rows.size();
  request.differences = false;
  EXPECT_GT(page_of(table, request).rows.size(), with);
}

TEST(ComparisonPage, BootstrapIntervalsAreOfTheRowsOfThePage) {
  const ComparisonTable table = table_of(5, 8);
  const ComparisonPage page = page_of(table, {});
  ASSERT_EQ(page.details.size(), page.rows.size());
  EXPECT_FALSE(page.details[0].bca.has_value()) << "the baseline has no difference";
  ASSERT_TRUE(page.details[1].bca.has_value());
  EXPECT_LT(page.details[1].bca->low, page.rows[1]->paired.mean);
  EXPECT_GT(page.details[1].bca->high, page.rows[1]->paired.mean);
  EXPECT_THAT(page_of(table_of(1, 5), {}).details[1].bca_note,
              testing::HasSubstr("a bootstrap interval needs 6 pairs"));
}

TEST(ComparisonPage, RatiosOfGainsHaveFiellersIntervalOrAreRefused) {
  ComparisonTable table = table_of(3, 0);
  const auto set = [&](std::size_t row, std::vector<double> d) {
    table.rows[row].differences = d;
    table.rows[row].seeds = {1, 2, 3, 4, 5};
    table.rows[row].paired = summarize_pairs(d);
  };
  set(1, {-.019, -.024, -.013, -.021, -.016});
  set(2, {-.006, -.009, -.004, -.008, -.005});
  set(3, {-.006, .009, -.004, .008, -.005});
  PageRequest request;
  request.ratio_to = find_ratio(table, table.rows[2].name).value();
  ComparisonPage page = page_of(table, request);
  EXPECT_EQ(page.ratio_to, table.rows[2].name);
  EXPECT_FALSE(page.details[0].ratio.has_value());
  EXPECT_NEAR(page.details[1].ratio->value.value(), 2.90625, 1e-12);
  EXPECT_NEAR(page.details[1].ratio->high.value(), 3.536072012552712, 1e-9);
  request.ratio_to = find_ratio(table, table.rows[3].name).value();
  page = page_of(table, request);
  EXPECT_FALSE(page.details[1].ratio->value.has_value());
  EXPECT_THAT(page.details[1].ratio->refused, testing::HasSubstr("cannot be told from 0"));
  table.rows[3].status = RowStatus::kIncomplete;
  EXPECT_THAT(page_of(table, request).details[1].ratio->refused,
              testing::HasSubstr("a seed failed"));
  EXPECT_THAT(find_ratio(table, "base").error().message(), testing::HasSubstr("whose gain is 0"));
  EXPECT_THAT(find_ratio(table, "candidat 999").error().message(),
              testing::HasSubstr("did you mean"));
  EXPECT_FALSE(find_ratio(table, "").value().has_value());
}

}  // namespace
}  // namespace tailor::analysis
