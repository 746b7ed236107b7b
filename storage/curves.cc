// Curves from chunks and unsealed points.
#include "storage/curves.h"

#include <algorithm>
#include <utility>

#include "storage/chunk.h"

namespace tailor::storage {
namespace {

void add_sealed(Query& row, SealedCurves& curves) {
  SealedPoints& part = curves[{row.integer(0), row.integer(1)}];
  if (part.name.empty()) part.name = row.text(2);
  part.sealed = row.u64(3);
  part.tail_to = row.integer(4);
  Result<std::vector<Point>> points = decode_chunk(row.text(5));
  if (!points) throw_corrupt(points.error().message());
  part.points.insert(part.points.end(), points->begin(), points->end());
}

}  // namespace

SealedCurves read_sealed(Connection& db, TrialId trial, std::optional<std::string_view> metric) {
  SealedCurves curves;
  if (trial.value > kAttemptTrialMax) return curves;
  constexpr std::string_view kAll =
      "SELECT c.attempt, c.metric, m.name, c.sealed, c.tail_to, c.data FROM metric_chunk c INDEXED "
      "BY "
      "metric_chunk_by_series CROSS JOIN metric m ON m.id = c.metric WHERE c.attempt >= ?1 AND "
      "c.attempt < ?2 ORDER BY c.attempt, c.metric, c.id";
  constexpr std::string_view kOne =
      "SELECT c.attempt, c.metric, ?3, c.sealed, c.tail_to, c.data FROM metric_chunk c INDEXED BY "
      "metric_chunk_by_series WHERE c.attempt >= ?1 AND c.attempt < ?2 AND c.metric = "
      "(SELECT id FROM metric WHERE name = ?3) ORDER BY c.attempt, c.metric, c.id";
  if (metric) {
    const std::string name(*metric);
    Query query(db.statement(kOne), first_attempt_key(trial), end_attempt_key(trial), name);
    while (query.next()) add_sealed(query, curves);
  } else {
    Query query(db.statement(kAll), first_attempt_key(trial), end_attempt_key(trial));
    while (query.next()) add_sealed(query, curves);
  }
  return curves;
}

std::optional<std::vector<Series>> join_curves(LiveCurves live, SealedCurves sealed) {
  std::map<SeriesKey, LivePoints> unsealed;
  for (LivePoints& part : live.series) unsealed.emplace(part.series, std::move(part));
  std::map<std::string, std::vector<AttemptPoints>> curves;
  for (auto& [series, chunks] : sealed) {
    if (chunks.tail_to > live.next_id) return std::nullopt;
    if (const auto found = unsealed.find(series); found != unsealed.end()) {
      const LivePoints& rest = found->second;
      const std::uint64_t known = chunks.sealed - std::min(chunks.sealed, rest.sealed);
      if (known < rest.points.size()) {
        chunks.points.insert(chunks.points.end(),
                             rest.points.begin() + static_cast<std::ptrdiff_t>(known),
                             rest.points.end());
      }
      unsealed.erase(found);
    }
    curves[chunks.name].push_back(
        {attempt_of_key(series.attempt).number, std::move(chunks.points)});
  }
  for (auto& [series, rest] : unsealed) {
    curves[rest.name].push_back({attempt_of_key(series.attempt).number, std::move(rest.points)});
  }
  std::vector<Series> joined;
  for (auto& [name, attempts] : curves) {
    Series series = join_attempts(name, std::move(attempts));
    if (!series.steps.empty()) joined.push_back(std::move(series));
  }
  return joined;
}

std::vector<std::string> read_sealed_names(Connection& db, TrialId trial) {
  std::vector<std::string> names;
  if (trial.value > kAttemptTrialMax) return names;
  Query query(db.statement("SELECT name FROM metric WHERE id IN (SELECT DISTINCT metric FROM "
                           "metric_chunk WHERE attempt >= ? AND attempt < ?) ORDER BY name"),
              first_attempt_key(trial), end_attempt_key(trial));
  while (query.next()) names.push_back(query.text(0));
  return names;
}

std::vector<TrialId> read_trial_ids(Connection& db, SweepId sweep, TrialId after,
                                    std::size_t limit) {
  std::vector<TrialId> ids;
  Query query(db.statement("SELECT id FROM trial INDEXED BY trial_by_sweep WHERE sweep = ? AND "
                           "id > ? ORDER BY id LIMIT ?"),
              sweep.value, after.value, static_cast<std::uint64_t>(limit));
  while (query.next()) ids.push_back(TrialId{query.u64(0)});
  return ids;
}

}  // namespace tailor::storage
