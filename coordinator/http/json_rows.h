// Views and rows as the JSON of the HTTP API (private to coordinator/http). Keys are only ever
// added. Numbers that JSON cannot say are null.
#pragma once

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
Json to_json(const analysis::ComparisonTable& table, const analysis::ComparisonPage& page);

template <typename Row>
Json list_of(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

}  // namespace tailor::http
