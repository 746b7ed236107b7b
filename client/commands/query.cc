// tailor query: a user's own SELECT, read-only, with limits.
#include <fmt/format.h>

#include "client/table.h"

namespace tailor::client {

void add_query(CLI::App& app, Context& context) {
  struct Options {
    std::string sql;
    std::uint64_t rows_max = 1000;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "query",
      "Runs one read-only SQL SELECT on the coordinator's database (docs/cli.md lists the tables).",
      "  tailor query \"SELECT name, state FROM sweep\"\n"
      "  tailor query \"SELECT * FROM trial_view ORDER BY objective LIMIT 10\" --json");
  command->add_option("SQL", options->sql, "one SELECT")->required();
  command->add_option("--max", options->rows_max, "rows at most")->check(CLI::Range(1, 1000000));
  command->callback([&context, options] {
    v1::QueryRequest request;
    request.set_sql(options->sql);
    request.set_rows_max(options->rows_max);
    request.set_time_ms_max(static_cast<std::int64_t>(context.timeout_s * 900));
    const auto answer = context.call<v1::QueryRequest, v1::QueryResponse>(
        &v1::CoordinatorService::Stub::Query, request);
    const Printer out = context.printer();
    if (out.json()) {
      Json json;
      json["columns"] = Json::array();
      for (const auto& c : answer.columns()) json["columns"].push_back(c);
      json["rows"] = Json::array();
      for (const auto& row : answer.rows()) {
        Json cells = Json::array();
        for (const auto& cell : row.cells())
          cells.push_back(cell.has_text() ? Json(cell.text()) : Json(nullptr));
        json["rows"].push_back(std::move(cells));
      }
      json["truncated"] = answer.truncated();
      return out.document(json);
    }
    std::vector<Column> columns;
    for (const auto& c : answer.columns()) columns.push_back({c});
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : answer.rows()) {
      std::vector<std::string> cells;
      for (const auto& cell : row.cells()) cells.push_back(cell.has_text() ? cell.text() : "NULL");
      rows.push_back(std::move(cells));
    }
    out.table(columns, rows);
    if (answer.truncated())
      out.note(fmt::format("cut after {} rows; --max gives more", options->rows_max));
  });
}

}  // namespace tailor::client
