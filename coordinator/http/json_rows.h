// Views and rows as the JSON of the HTTP API (private to coordinator/http). Keys are only ever
// added. Numbers that JSON cannot say are null.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/analysis/comparison_page.h"
#include "coordinator/engine/views.h"

namespace tailor::http {

using Json = nlohmann::ordered_json;

Json number(double value);
Json number(const std::optional<double>& value);
/// JSON text of a row as a value; the text itself when it is none.
Json parsed(const std::string& text);

Json to_json(const engine::SweepView& view);
Json to_json(const storage::CandidateRow& row);
Json to_json(const engine::TrialView& view);
Json to_json(const engine::AttemptView& view);
Json to_json(const storage::CheckpointRow& row);
Json to_json(const storage::ProfileRow& row);
Json to_json(const engine::WorkerView& view);
Json to_json(const storage::EventRow& row);
/// `page` is one of `table`.
Json to_json(const analysis::ScalingTable& table);
Json to_json(const analysis::ComparisonTable& table, const analysis::ComparisonPage& page);

/// Bytes of the entries of one list: an answer has a few lists at most, and the dashboard asks
/// again every few seconds.
inline constexpr std::size_t kListBytesMax = 1 << 20;

/// A page of a list: entries until `limit` or until they have kListBytesMax bytes, but one at
/// least.
template <typename Rows>
Json page_of(const Rows& rows, std::uint64_t offset, std::uint64_t limit) {
  Json page = Json::array();
  std::size_t bytes = 0;
  for (std::uint64_t i = offset; i < rows.size() && page.size() < limit; ++i) {
    Json entry = to_json(rows[i]);
    bytes += entry.dump(-1, ' ', false, Json::error_handler_t::replace).size();
    if (bytes > kListBytesMax && !page.empty()) break;
    page.push_back(std::move(entry));
  }
  return page;
}

template <typename Row>
Json list_of(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

}  // namespace tailor::http
