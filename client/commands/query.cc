// tailor query: a user's own SELECT, read-only, with limits.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <set>

#include "client/table.h"

namespace tailor::client {

namespace {

/// A value as JSON: numbers are numbers (integers exact in 64 bits), NULL is null, bytes are
/// hexadecimal text.
Json cell_json(const v1::QueryRow::Cell& cell) {
  if (!cell.has_text()) return nullptr;
  const std::string& text = cell.text();
  if (cell.kind() == v1::QueryRow::KIND_INTEGER) {
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc())
      return value;
  }
  if (cell.kind() == v1::QueryRow::KIND_REAL)
    return json_number(std::strtod(text.c_str(), nullptr));
  return text;
}

std::set<int> columns_of_bytes(const v1::QueryResponse& answer) {
  std::set<int> columns;
  for (const auto& row : answer.rows()) {
    for (int i = 0; i < row.cells_size(); ++i) {
      if (row.cells(i).kind() == v1::QueryRow::KIND_BYTES) columns.insert(i);
    }
  }
  return columns;
}

/// What the rows alone do not say.
void notes(const Printer& out, const v1::QueryResponse& answer) {
  for (const int column : columns_of_bytes(answer)) {
    out.note(fmt::format("column {} holds bytes, written in hexadecimal", answer.columns(column)));
  }
  if (answer.truncated()) {
    out.note(
        fmt::format("cut after {} rows: --max allows more rows, but an answer has 24 MiB at most",
                    answer.rows_size()));
  }
}

/// All rows, in pieces; of a coordinator that does not know pieces, in one.
v1::QueryResponse run_query(Context& context, const v1::QueryRequest& request) {
  require_text(request);
  v1::QueryResponse whole;
  grpc::ClientContext call;
  call.set_deadline(context.deadline());
  const auto reader = context.stub().QueryRows(&call, request);
  v1::QueryResponse piece;
  while (reader->Read(&piece)) {
    whole.mutable_columns()->MergeFrom(piece.columns());
    whole.mutable_rows()->MergeFrom(piece.rows());
    whole.set_truncated(piece.truncated());
  }
  const grpc::Status status = reader->Finish();
  if (status.error_code() == grpc::UNIMPLEMENTED) {
    return context.call<v1::QueryRequest, v1::QueryResponse>(&v1::CoordinatorService::Stub::Query,
                                                             request);
  }
  context.check(status);
  return whole;
}

}  // namespace

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
      "  tailor query \"SELECT * FROM best_view WHERE place <= 5\"     the best of each sweep\n"
      "  tailor query \"SELECT * FROM trial_view ORDER BY objective NULLS LAST LIMIT 10\" --json");
  command->add_option("SQL", options->sql, "one SELECT")->required();
  command->add_option("--max", options->rows_max, "rows at most")->check(CLI::Range(1, 1000000));
  command->callback([&context, options] {
    v1::QueryRequest request;
    request.set_sql(options->sql);
    request.set_rows_max(options->rows_max);
    request.set_time_ms_max(static_cast<std::int64_t>(context.timeout_s * 900));
    const v1::QueryResponse answer = run_query(context, request);
    const Printer out = context.printer();
    if (out.json()) {
      Json json;
      json["columns"] = Json::array();
      for (const auto& c : answer.columns()) json["columns"].push_back(c);
      json["rows"] = Json::array();
      for (const auto& row : answer.rows()) {
        Json cells = Json::array();
        for (const auto& cell : row.cells()) cells.push_back(cell_json(cell));
        json["rows"].push_back(std::move(cells));
      }
      json["truncated"] = answer.truncated();
      json["hex_columns"] = Json::array();
      for (const int column : columns_of_bytes(answer))
        json["hex_columns"].push_back(answer.columns(column));
      out.list_document(json, "rows");
      return notes(out, answer);
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
    notes(out, answer);
  });
}

}  // namespace tailor::client
