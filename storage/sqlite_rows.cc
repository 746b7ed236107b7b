// Rows to statements and back.
#include "storage/sqlite_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json.h"
#include "storage/attempt_key.h"
#include "storage/trial_pages.h"

namespace tailor::storage {
namespace {

using nlohmann::json;

// JSON has no NaN and no infinities: they are written as text.
std::string values_to_json(const std::map<std::string, double>& values) {
  json out = json::object();
  for (const auto& [name, value] : values) {
    if (std::isfinite(value)) {
      out[name] = value;
    } else {
      out[name] = std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
    }
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::map<std::string, double> values_from_json(const std::string& text) {
  const json in = parse_json(text).value_or(nullptr);
  if (!in.is_object()) throw_corrupt("final values that are no JSON object");
  std::map<std::string, double> values;
  for (const auto& [name, value] : in.items()) {
    if (value.is_number()) {
      values[name] = value.get<double>();
    } else if (value == "nan") {
      values[name] = std::nan("");
    } else if (value == "inf" || value == "-inf") {
      values[name] = (value == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
    } else {
      throw_corrupt("a final value that is no number");
    }
  }
  return values;
}

// Numbers that JSON cannot say are null.
template <typename T>
std::vector<T> numbers_from_json(const std::string& text, std::string_view what) {
  const json in = parse_json(text).value_or(nullptr);
  if (!in.is_array()) throw_corrupt(what);
  std::vector<T> numbers;
  for (const json& number : in) {
    if (!number.is_number() && !number.is_null()) throw_corrupt(what);
    numbers.push_back(number.is_null() ? std::numeric_limits<T>::quiet_NaN() : number.get<T>());
  }
  return numbers;
}

std::vector<std::uint32_t> slots_from_json(const std::string& text) {
  const json in = parse_json(text).value_or(nullptr);
  if (!in.is_array()) throw_corrupt("slots that are no JSON array");
  std::vector<std::uint32_t> slots;
  for (const json& slot : in) {
    if (!slot.is_number_unsigned()) throw_corrupt("a slot that is no number");
    slots.push_back(slot.get<std::uint32_t>());
  }
  return slots;
}

std::string members_to_json(const std::vector<AttemptMember>& members) {
  if (members.empty()) return "";
  json out = json::array();
  for (const AttemptMember& member : members) {
    out.push_back({{"worker", member.worker.value},
                   {"slots", member.slots},
                   {"first_rank", member.first_rank},
                   {"ranks", member.ranks}});
    if (!member.ended) continue;
    out.back()["ended"] = protocol::end_class_name(*member.ended);
    out.back()["message"] = member.message;
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<AttemptMember> members_from_json(const std::string& text) {
  std::vector<AttemptMember> members;
  if (text.empty()) return members;
  const json in = parse_json(text).value_or(nullptr);
  if (!in.is_array()) throw_corrupt("members that are no JSON array");
  const auto number = [](const json& item, const char* key) -> std::uint64_t {
    if (!item.is_object() || !item.contains(key) || !item[key].is_number_unsigned()) {
      throw_corrupt("a member of an attempt without its numbers");
    }
    return item[key].get<std::uint64_t>();
  };
  const auto narrow = [&](const json& item, const char* key) {
    const std::uint64_t value = number(item, key);
    if (!std::in_range<std::uint32_t>(value)) throw_corrupt("a rank out of range");
    return static_cast<std::uint32_t>(value);
  };
  for (const json& item : in) {
    AttemptMember member;
    member.worker = WorkerId{number(item, "worker")};
    member.first_rank = narrow(item, "first_rank");
    member.ranks = narrow(item, "ranks");
    if (!item.contains("slots")) throw_corrupt("a member of an attempt without slots");
    member.slots = slots_from_json(item["slots"].dump());
    if (item.contains("ended")) {
      const auto ended = item["ended"].is_string()
                             ? protocol::parse_end_class(item["ended"].get<std::string>())
                             : Result<protocol::EndClass>(error(Code::kDataLoss, ""));
      if (!ended) throw_corrupt("a member of an attempt with an unknown end");
      member.ended = *ended;
      member.message = item.value("message", "");
    }
    members.push_back(std::move(member));
  }
  return members;
}

// ["big","rack=3"]; "" when there are none.
std::string labels_to_json(const std::vector<std::string>& labels) {
  if (labels.empty()) return "";
  return json(labels).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> labels_from_json(const std::string& text) {
  std::vector<std::string> labels;
  if (text.empty()) return labels;
  const json in = parse_json(text).value_or(nullptr);
  if (!in.is_array()) throw_corrupt("labels that are no JSON array");
  for (const json& label : in) {
    if (!label.is_string()) throw_corrupt("a label that is no text");
    labels.push_back(label.get<std::string>());
  }
  return labels;
}

template <typename T>
T state_or_corrupt(Result<T> state) {
  if (!state) throw_corrupt(state.error().message());
  return *state;
}

std::optional<protocol::EndClass> end_class_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return state_or_corrupt(protocol::parse_end_class(name));
}

constexpr std::string_view kSweepColumns =
    "SELECT s.id, s.name, s.spec_hash, s.base_dir, f.toml, s.state, s.priority, s.search_state, "
    "s.infeasible, s.created_ms, s.ended_ms, s.infeasible_json, s.user FROM sweep s JOIN "
    "sweep_file f ON "
    "f.sweep = s.id";
/// Without the text of the file.
constexpr std::string_view kSweepHeadColumns =
    "SELECT s.id, s.name, s.spec_hash, s.base_dir, '', s.state, s.priority, s.search_state, "
    "s.infeasible, s.created_ms, s.ended_ms, s.infeasible_json, s.user FROM sweep s";

SweepRow sweep_of(Query& row) {
  SweepRow sweep;
  sweep.id = SweepId{row.u64(0)};
  sweep.name = row.text(1);
  sweep.spec_hash = row.text(2);
  sweep.base_dir = row.text(3);
  sweep.toml = row.text(4);
  sweep.state = state_or_corrupt(parse_sweep_state(row.text(5)));
  sweep.priority = row.i32(6);
  sweep.search_state = row.text(7);
  sweep.infeasible = row.u64(8);
  sweep.created_ms = row.integer(9);
  sweep.ended_ms = row.integer(10);
  sweep.infeasible_json = row.text(11);
  sweep.user = row.text(12);
  return sweep;
}

CandidateRow candidate_of(Query& row) {
  CandidateRow candidate;
  candidate.sweep = SweepId{row.u64(0)};
  candidate.index = row.u32(1);
  candidate.name = row.text(2);
  candidate.point_json = row.text(3);
  candidate.architecture_json = row.text(4);
  candidate.hash = row.text(5);
  candidate.parameters_body = row.integer(6);
  candidate.parameters_total = row.integer(7);
  return candidate;
}

constexpr std::string_view kAttemptColumns =
    "SELECT a.trial, a.number, a.token, a.worker, a.slots_json, a.state, a.acked_sequence, "
    "a.log_bytes, "
    "a.end_class, a.message, coalesce((SELECT s.started_json FROM attempt_start s WHERE "
    "s.attempt = a.id), ''), a.assigned_ms, a.ended_ms, a.stop_reason, a.members_json, "
    "a.ran_ms, a.awaits_step FROM attempt a";

AttemptRow attempt_of(Query& row) {
  AttemptRow attempt;
  attempt.id = {TrialId{row.u64(0)}, row.u32(1)};
  attempt.token = row.u64(2);
  attempt.worker = WorkerId{row.u64(3)};
  attempt.slots = slots_from_json(row.text(4));
  attempt.state = state_or_corrupt(parse_attempt_state(row.text(5)));
  attempt.acked_sequence = row.u64(6);
  attempt.log_bytes = row.u64(7);
  attempt.end_class = end_class_of(row.text(8));
  attempt.message = row.text(9);
  attempt.started_json = row.text(10);
  attempt.assigned_ms = row.integer(11);
  attempt.ended_ms = row.integer(12);
  attempt.stop_reason = protocol::parse_stop_reason(row.text(13));
  attempt.members = members_from_json(row.text(14));
  attempt.ran_ms = row.integer(15);
  attempt.awaits_step = row.integer(16) != 0;
  return attempt;
}

constexpr auto kOffsetMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

bool may_exist(AttemptId attempt) {
  return attempt.trial.value <= kAttemptTrialMax && attempt.number <= kAttemptNumberMax;
}

template <typename Row, typename Read>
std::vector<Row> all(Query& query, Read read) {
  std::vector<Row> rows;
  while (query.next()) rows.push_back(read(query));
  return rows;
}

constexpr std::string_view kCandidateColumns =
    "SELECT sweep, number, name, point_json, architecture_json, hash, parameters_body, "
    "parameters_total FROM candidate";

std::vector<CandidateRow> read_candidates_where(Connection& db, std::string_view where,
                                                std::int64_t sweep) {
  Query query(db.statement(sql_text(kCandidateColumns, where)), sweep);
  return all<CandidateRow>(query, candidate_of);
}

}  // namespace

const std::string_view kTrialColumns =
    "SELECT id, sweep, candidate, seed, state, attempts, failures_json, end_class, message, "
    "objective, "
    "objective_nan, final_values_json, created_ms, started_ms, ended_ms, priority, run_ms FROM "
    "trial";

TrialRow trial_of(Query& row) {
  TrialRow trial;
  trial.id = TrialId{row.u64(0)};
  trial.sweep = SweepId{row.u64(1)};
  trial.candidate = row.u32(2);
  trial.seed = row.u64(3);
  trial.state = state_or_corrupt(parse_trial_state(row.text(4)));
  trial.attempts = row.u32(5);
  trial.failures_json = row.text(6);
  trial.end_class = end_class_of(row.text(7));
  trial.message = row.text(8);
  if (row.integer(10) != 0) {
    trial.objective = std::nan("");
  } else if (!row.null(9)) {
    trial.objective = row.real(9);
  }
  trial.final_values = values_from_json(row.text(11));
  trial.created_ms = row.integer(12);
  trial.started_ms = row.integer(13);
  trial.ended_ms = row.integer(14);
  trial.priority = row.i32(15);
  trial.run_ms = row.integer(16);
  return trial;
}

// Statements are cached by their text, which has to outlive the connection: texts put together at
// run time are kept here once for the process. Their number is small and fixed.
std::string_view sql_text(std::string_view columns, std::string_view rest) {
  static std::mutex mutex;  // guards: texts
  static std::set<std::string> texts;
  const std::lock_guard lock(mutex);
  return *texts.insert(std::string(columns) + " " + std::string(rest)).first;
}

void write_row(Connection& db, const SweepRow& row) {
  Query(db.statement(
            "INSERT INTO sweep (id, name, spec_hash, base_dir, state, priority, search_state, "
            "infeasible, "
            "created_ms, ended_ms, infeasible_json, user) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
            "?) ON "
            "CONFLICT (id) DO "
            "UPDATE SET "
            "name = excluded.name, spec_hash = excluded.spec_hash, base_dir = excluded.base_dir, "
            "state = excluded.state, priority = excluded.priority, search_state = "
            "excluded.search_state, "
            "infeasible = excluded.infeasible, created_ms = excluded.created_ms, "
            "ended_ms = excluded.ended_ms, infeasible_json = excluded.infeasible_json, "
            "user = excluded.user"),
        row.id.value, row.name, row.spec_hash, row.base_dir, sweep_state_name(row.state),
        row.priority, Blob{row.search_state}, row.infeasible, row.created_ms, row.ended_ms,
        row.infeasible_json, row.user)
      .run();
  Query(db.statement(
            "INSERT INTO sweep_file (sweep, toml) VALUES (?, ?) ON CONFLICT (sweep) DO UPDATE SET "
            "toml = excluded.toml WHERE toml IS NOT excluded.toml"),
        row.id.value, row.toml)
      .run();
}

void write_row(Connection& db, const CandidateRow& row) {
  Query(db.statement(
            "INSERT INTO candidate (sweep, number, name, point_json, architecture_json, hash, "
            "parameters_body, parameters_total) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (sweep, number) DO UPDATE SET name = excluded.name, "
            "point_json = excluded.point_json, architecture_json = excluded.architecture_json, "
            "hash = excluded.hash, parameters_body = excluded.parameters_body, "
            "parameters_total = excluded.parameters_total"),
        row.sweep.value, row.index, row.name, row.point_json, row.architecture_json, row.hash,
        row.parameters_body, row.parameters_total)
      .run();
}

std::optional<OldTrial> replace_trial(Connection& db, const TrialRow& row) {
  std::optional<OldTrial> old;
  bool same_keys = false;
  {
    Query known(db.statement("SELECT state, sweep, candidate, seed FROM trial WHERE id = ?"),
                row.id.value);
    if (known.next()) {
      old = {SweepId{known.u64(1)}, state_or_corrupt(parse_trial_state(known.text(0)))};
      same_keys =
          old->sweep == row.sweep && known.u64(2) == row.candidate && known.u64(3) == row.seed;
    }
  }
  if (old && !same_keys) {
    Query(db.statement("UPDATE trial SET sweep = ?, candidate = ?, seed = ? WHERE id = ?"),
          row.sweep.value, row.candidate, row.seed, row.id.value)
        .run();
  }
  // An update names no column of the keys: it would write their indexes anew as well.
  SQLite::Statement& statement =
      old ? db.statement(
                "UPDATE trial SET state = ?5, attempts = ?6, failures_json = ?7, end_class = ?8, "
                "message = ?9, objective = ?10, objective_nan = ?11, final_values_json = ?12, "
                "created_ms = ?13, started_ms = ?14, ended_ms = ?15, priority = ?16, "
                "run_ms = ?17 WHERE id = ?1")
          : db.statement(
                "INSERT INTO trial (id, sweep, candidate, seed, state, attempts, failures_json, "
                "end_class, message, objective, objective_nan, final_values_json, created_ms, "
                "started_ms, ended_ms, priority, run_ms) "
                "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, "
                "?16, ?17)");
  // NaN is bound as NULL, which is right for "none" as well.
  const double objective = row.objective.value_or(std::nan(""));
  const bool objective_nan = row.objective.has_value() && std::isnan(*row.objective);
  const std::string values = values_to_json(row.final_values);
  Query(statement, row.id.value, row.sweep.value, row.candidate, row.seed,
        trial_state_name(row.state), row.attempts, row.failures_json,
        protocol::end_class_name(row.end_class), row.message, objective, objective_nan, values,
        row.created_ms, row.started_ms, row.ended_ms, row.priority, row.run_ms)
      .run();
  return old;
}

void write_row(Connection& db, const AttemptRow& row) {
  const std::string slots = json(row.slots).dump();
  const std::string members = members_to_json(row.members);
  Query(db.statement(
            "INSERT INTO attempt (id, trial, number, token, worker, slots_json, state, "
            "acked_sequence, log_bytes, end_class, message, assigned_ms, ended_ms, stop_reason, "
            "members_json, ran_ms, awaits_step) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET "
            "token = excluded.token, worker = excluded.worker, slots_json = excluded.slots_json, "
            "state = excluded.state, acked_sequence = excluded.acked_sequence, "
            "log_bytes = excluded.log_bytes, end_class = excluded.end_class, message = "
            "excluded.message, "
            "assigned_ms = excluded.assigned_ms, "
            "ended_ms = excluded.ended_ms, stop_reason = excluded.stop_reason, "
            "members_json = excluded.members_json, ran_ms = excluded.ran_ms, "
            "awaits_step = excluded.awaits_step"),
        attempt_key(row.id), row.id.trial.value, row.id.number, row.token, row.worker.value, slots,
        attempt_state_name(row.state), row.acked_sequence, row.log_bytes,
        protocol::end_class_name(row.end_class), row.message, row.assigned_ms, row.ended_ms,
        protocol::stop_reason_name(row.stop_reason), members, row.ran_ms, row.awaits_step)
      .run();
  // Neither statement writes anything where nothing changes.
  if (row.started_json.empty()) {
    Query(db.statement("DELETE FROM attempt_start WHERE attempt = ?"), attempt_key(row.id)).run();
  } else {
    Query(db.statement("INSERT INTO attempt_start (attempt, started_json) VALUES (?, ?) "
                       "ON CONFLICT (attempt) DO UPDATE SET started_json = excluded.started_json "
                       "WHERE started_json <> excluded.started_json"),
          attempt_key(row.id), row.started_json)
        .run();
  }
}

void write_row(Connection& db, const WorkerRow& row) {
  const std::string labels = labels_to_json(row.labels);
  Query(db.statement(
            "INSERT INTO worker (id, name, instance, host, version, slots_json, draining, "
            "first_seen_ms, last_seen_ms, folder, labels_json, memory_bytes, quarantine, "
            "quarantined_ms, quarantine_cause, drain_at_ms) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, instance = excluded.instance, "
            "host = excluded.host, version = excluded.version, slots_json = excluded.slots_json, "
            "draining = excluded.draining, first_seen_ms = excluded.first_seen_ms, "
            "last_seen_ms = excluded.last_seen_ms, folder = excluded.folder, "
            "labels_json = excluded.labels_json, memory_bytes = excluded.memory_bytes, "
            "quarantine = excluded.quarantine, quarantined_ms = excluded.quarantined_ms, "
            "quarantine_cause = excluded.quarantine_cause, drain_at_ms = excluded.drain_at_ms"),
        row.id.value, row.name, row.instance, row.host, row.version, row.slots_json, row.draining,
        row.first_seen_ms, row.last_seen_ms, row.folder, labels, row.memory_bytes, row.quarantine,
        row.quarantined_ms, std::string(quarantine_cause_name(row.quarantine_cause)),
        row.drain_at_ms)
      .run();
}

void write_row(Connection& db, const CheckpointRow& row) {
  Query(
      db.statement("INSERT INTO checkpoint (trial, attempt, step, path, sha256, bytes, wall_ms) "
                   "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (trial, attempt, step) DO UPDATE SET "
                   "path = excluded.path, sha256 = excluded.sha256, bytes = excluded.bytes, "
                   "wall_ms = excluded.wall_ms"),
      row.attempt.trial.value, row.attempt.number, row.step, row.path, row.sha256, row.bytes,
      row.wall_ms)
      .run();
}

namespace {

std::string energies_to_json(const std::optional<protocol::MatchEnergies>& of) {
  if (!of) return "";
  return json({of->energy, of->identity, of->norm_bound, of->second_bound, of->third_bound,
               static_cast<double>(of->certified)})
      .dump();
}

}  // namespace

void write_row(Connection& db, const ProfileRow& row) {
  // NaN is NULL, and so is an error that cannot be known.
  const double standard_error = row.standard_error.value_or(std::nan(""));
  const std::string values = json(row.subsample_values).dump();
  const std::string tokens = json(row.subsample_tokens).dump();
  Query(db.statement(
            "INSERT INTO profile (trial, attempt, step, layer, sub_block, geometry, statistic, "
            "value, standard_error, tokens, subsamples, linear_tokens, rho, seed, dropped, "
            "no_error, subsample_values_json, subsamples_asked, positions, sequences, "
            "sequences_given, subsample_tokens_json, energies_json) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
            "NULLIF(?, '')) "
            "ON CONFLICT (trial, attempt, step, layer, sub_block, geometry, statistic) "
            "DO UPDATE SET value = excluded.value, standard_error = excluded.standard_error, "
            "tokens = excluded.tokens, subsamples = excluded.subsamples, "
            "linear_tokens = excluded.linear_tokens, rho = excluded.rho, seed = excluded.seed, "
            "dropped = excluded.dropped, no_error = excluded.no_error, "
            "subsample_values_json = excluded.subsample_values_json, "
            "subsamples_asked = excluded.subsamples_asked, positions = excluded.positions, "
            "sequences = excluded.sequences, sequences_given = excluded.sequences_given, "
            "subsample_tokens_json = excluded.subsample_tokens_json, "
            "energies_json = excluded.energies_json"),
        row.attempt.trial.value, row.attempt.number, row.step, row.layer, row.sub_block,
        row.geometry, row.statistic, row.value, standard_error, row.tokens, row.subsamples,
        row.linear_tokens, row.rho, row.seed, row.dropped, row.no_error, values,
        row.subsamples_asked, row.positions, row.sequences, row.sequences_given, tokens,
        energies_to_json(row.energies))
      .run();
}

void write_row(Connection& db, const MeasurementRow& row) {
  Query(db.statement("INSERT INTO measurement (trial, attempt, step, key, data_hash, failure, "
                     "dimension_failure, wall_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                     "ON CONFLICT (trial, attempt, step) DO UPDATE SET key = excluded.key, "
                     "data_hash = excluded.data_hash, failure = excluded.failure, "
                     "dimension_failure = excluded.dimension_failure, wall_ms = excluded.wall_ms"),
        row.attempt.trial.value, row.attempt.number, row.step, row.key, row.data_hash, row.failure,
        row.dimension_failure, row.wall_ms)
      .run();
}

void write_row(Connection& db, const ScheduleRow& row) {
  Query(db.statement(
            "INSERT INTO schedule (sweep, candidate, state, reference, key, measured_trial, "
            "measured_attempt, data_hash, message, request_json, problem_json, solution_json, "
            "raw_widths_json, "
            "widths_json, wall_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (sweep, candidate) DO UPDATE SET state = excluded.state, "
            "reference = excluded.reference, key = excluded.key, "
            "measured_trial = excluded.measured_trial, measured_attempt = "
            "excluded.measured_attempt, data_hash = excluded.data_hash, "
            "message = excluded.message, request_json = excluded.request_json, "
            "problem_json = excluded.problem_json, solution_json = excluded.solution_json, "
            "raw_widths_json = excluded.raw_widths_json, widths_json = excluded.widths_json, "
            "wall_ms = excluded.wall_ms"),
        row.sweep.value, row.candidate, std::string(schedule_state_name(row.state)),
        row.reference.value, row.key, row.measured.trial.value, row.measured.number, row.data_hash,
        row.message, row.request_json, row.problem_json, row.solution_json, row.raw_widths_json,
        row.widths_json, row.wall_ms)
      .run();
}

void write_row(Connection& db, const EventRow& row) {
  Query(db.statement("INSERT INTO event (wall_ms, kind, sweep, trial, attempt, worker, message) "
                     "VALUES (?, ?, ?, ?, ?, ?, ?)"),
        row.wall_ms, event_kind_name(row.kind), row.sweep.value, row.trial.value, row.attempt,
        row.worker.value, row.message)
      .run();
}

void write_row(Connection& db, const LogRow& row) {
  Query(db.statement("INSERT INTO log_chunk (attempt, offset, bytes) VALUES (?, ?, ?) "
                     "ON CONFLICT (attempt, offset) DO NOTHING"),
        attempt_key(row.attempt), row.offset, Blob{row.bytes})
      .run();
}

void write_row(Connection& db, const LogTrim& row) {
  Query(db.statement("DELETE FROM log_chunk WHERE attempt = ? AND offset >= ? AND "
                     "offset + length(bytes) <= ?"),
        attempt_key(row.attempt), row.from, row.to)
      .run();
}

void write_row(Connection& db, const CountersRow& row) {
  Query(db.statement(
            "INSERT INTO counters (id, next_sweep, next_trial, next_worker, next_token, "
            "generation, file_id) VALUES (1, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "next_sweep = excluded.next_sweep, next_trial = excluded.next_trial, "
            "next_worker = excluded.next_worker, next_token = excluded.next_token, "
            "generation = excluded.generation, file_id = excluded.file_id"),
        row.next_sweep, row.next_trial, row.next_worker, row.next_token, row.generation,
        row.file_id)
      .run();
}

namespace {

constexpr std::string_view kCheckpointColumns =
    "SELECT trial, attempt, step, path, sha256, bytes, wall_ms FROM checkpoint";

CheckpointRow checkpoint_of(Query& row) {
  return CheckpointRow{{TrialId{row.u64(0)}, row.u32(1)},
                       row.integer(2),
                       row.text(3),
                       row.text(4),
                       row.integer(5),
                       row.integer(6)};
}

/// Of the trials that are not final, the newest checkpoint of each: the last attempt's that has
/// any.
std::vector<CheckpointRow> read_newest_checkpoints(Connection& db,
                                                   const std::vector<TrialRow>& trials) {
  std::vector<CheckpointRow> newest;
  for (const TrialRow& trial : trials) {
    if (is_final(trial.state) || trial.attempts == 0) continue;
    Query query(db.statement(sql_text(kCheckpointColumns,
                                      "WHERE trial = ? ORDER BY attempt DESC, step DESC LIMIT 1")),
                trial.id.value);
    if (query.next()) newest.push_back(checkpoint_of(query));
  }
  return newest;
}

}  // namespace

CountersRow read_counters(Connection& db) {
  Query counters(
      db.statement("SELECT next_sweep, next_trial, next_worker, next_token, generation, file_id "
                   "FROM counters"));
  if (!counters.next()) return {};
  return {counters.u64(0), counters.u64(1), counters.u64(2),
          counters.u64(3), counters.u32(4), counters.text(5)};
}

namespace {

/// What is not in `snapshot.sweeps`, counted.
void count_others(Connection& db, Snapshot& snapshot) {
  Query sweeps(db.statement("SELECT state, count(*) FROM sweep GROUP BY state"));
  while (sweeps.next()) {
    const SweepState state = state_or_corrupt(parse_sweep_state(sweeps.text(0)));
    snapshot.other_sweeps[state] += sweeps.u64(1);
  }
  TrialCounts trials = read_all_trial_counts(db);
  for (const SweepRow& sweep : snapshot.sweeps) {
    --snapshot.other_sweeps[sweep.state];
    const TrialCounts own = read_trial_counts(db, sweep.id);
    for (std::size_t i = 0; i < own.by_state.size(); ++i) trials.by_state[i] -= own.by_state[i];
  }
  for (std::size_t i = 0; i < trials.by_state.size(); ++i) {
    if (trials.by_state[i] == 0) continue;
    snapshot.other_trials[static_cast<TrialState>(i)] = trials.by_state[i];
  }
  std::erase_if(snapshot.other_sweeps, [](const auto& count) { return count.second == 0; });
}

}  // namespace

Snapshot read_open_snapshot(Connection& db) {
  Snapshot snapshot;
  snapshot.counters = read_counters(db);
  {
    Query sweeps(db.statement(sql_text(
        kSweepColumns,
        "WHERE s.state IN ('running', 'paused') OR EXISTS (SELECT 1 FROM trial_count n WHERE "
        "n.sweep = s.id AND n.queued + n.running > 0) ORDER BY s.id")));
    snapshot.sweeps = all<SweepRow>(sweeps, sweep_of);
  }
  count_others(db, snapshot);
  for (const SweepRow& sweep : snapshot.sweeps) {
    std::vector<CandidateRow> candidates = read_candidates(db, sweep.id);
    std::move(candidates.begin(), candidates.end(), std::back_inserter(snapshot.candidates));
    std::vector<ScheduleRow> schedules = read_schedules(db, sweep.id);
    std::move(schedules.begin(), schedules.end(), std::back_inserter(snapshot.schedules));
    Query trials(db.statement(sql_text(kTrialColumns, "WHERE sweep = ? ORDER BY id")),
                 sweep.id.value);
    while (trials.next()) snapshot.trials.push_back(trial_of(trials));
  }
  std::sort(snapshot.trials.begin(), snapshot.trials.end(),
            [](const TrialRow& a, const TrialRow& b) { return a.id < b.id; });
  for (const TrialRow& trial : snapshot.trials) {
    if (is_final(trial.state)) continue;
    std::vector<AttemptRow> attempts = read_attempts(db, trial.id);
    std::move(attempts.begin(), attempts.end(), std::back_inserter(snapshot.attempts));
  }
  snapshot.checkpoints = read_newest_checkpoints(db, snapshot.trials);
  snapshot.workers = read_workers(db);
  return snapshot;
}

Snapshot read_snapshot(Connection& db) {
  Snapshot snapshot;
  snapshot.counters = read_counters(db);
  snapshot.sweeps = read_sweeps(db);
  snapshot.candidates = read_candidates_where(db, "WHERE sweep > ? ORDER BY sweep, number", 0);
  for (const SweepRow& sweep : snapshot.sweeps) {
    std::vector<ScheduleRow> schedules = read_schedules(db, sweep.id);
    std::move(schedules.begin(), schedules.end(), std::back_inserter(snapshot.schedules));
  }
  {
    Query trials(db.statement(sql_text(kTrialColumns, "ORDER BY id")));
    snapshot.trials = all<TrialRow>(trials, trial_of);
  }
  {
    Query attempts(
        db.statement(sql_text(kAttemptColumns,
                              "JOIN trial t ON t.id = a.trial WHERE a.state <> 'ended' OR "
                              "(t.state = 'queued' OR t.state = 'running') "
                              "ORDER BY a.id")));
    snapshot.attempts = all<AttemptRow>(attempts, attempt_of);
  }
  snapshot.checkpoints = read_newest_checkpoints(db, snapshot.trials);
  snapshot.workers = read_workers(db);
  return snapshot;
}

std::vector<SweepRow> read_sweeps(Connection& db) {
  Query query(db.statement(sql_text(kSweepColumns, "ORDER BY s.id")));
  return all<SweepRow>(query, sweep_of);
}

std::optional<SweepRow> read_sweep(Connection& db, SweepId id) {
  Query query(db.statement(sql_text(kSweepColumns, "WHERE s.id = ?")), id.value);
  if (!query.next()) return std::nullopt;
  return sweep_of(query);
}

std::optional<SweepRow> read_sweep(Connection& db, std::string_view name) {
  Query query(db.statement(sql_text(kSweepColumns, "WHERE s.name = ?")), name);
  if (!query.next()) return std::nullopt;
  return sweep_of(query);
}

std::vector<CandidateRow> read_candidates(Connection& db, SweepId sweep) {
  return read_candidates_where(db, "WHERE sweep = ? ORDER BY number",
                               static_cast<std::int64_t>(sweep.value));
}

SweepPage read_sweep_page(Connection& db, std::uint64_t offset, std::uint64_t limit) {
  const auto signed_max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  SweepPage page;
  {
    Query count(db.statement("SELECT count(*) FROM sweep"));
    count.next();
    page.total = count.u64(0);
  }
  Query query(db.statement(sql_text(kSweepHeadColumns, "ORDER BY s.id DESC LIMIT ? OFFSET ?")),
              std::min(limit, signed_max), std::min(offset, signed_max));
  page.sweeps = all<SweepRow>(query, sweep_of);
  return page;
}

CandidatePage read_candidate_page(Connection& db, SweepId sweep, std::uint64_t offset,
                                  std::uint64_t limit) {
  CandidatePage page;
  {
    Query count(db.statement("SELECT coalesce(max(number), -1) + 1 FROM candidate WHERE sweep = ?"),
                sweep.value);
    count.next();
    page.total = count.u64(0);
  }
  Query query(db.statement(sql_text(kCandidateColumns,
                                    "WHERE sweep = ? AND number >= ? ORDER BY number LIMIT ?")),
              sweep.value, std::min(offset, kOffsetMax), std::min(limit, kOffsetMax));
  page.candidates = all<CandidateRow>(query, candidate_of);
  return page;
}

std::optional<TrialRow> read_trial(Connection& db, TrialId id) {
  Query query(db.statement(sql_text(kTrialColumns, "WHERE id = ?")), id.value);
  if (!query.next()) return std::nullopt;
  return trial_of(query);
}

std::vector<AttemptRow> read_attempts(Connection& db, TrialId trial) {
  if (trial.value > kAttemptTrialMax) return {};
  Query query(db.statement(sql_text(kAttemptColumns, "WHERE a.id >= ? AND a.id < ? ORDER BY a.id")),
              first_attempt_key(trial), end_attempt_key(trial));
  return all<AttemptRow>(query, attempt_of);
}

std::vector<StartRow> read_starts(Connection& db, SweepId sweep) {
  Query query(db.statement("SELECT t.id, coalesce(s.started_json, '') FROM trial t JOIN attempt a "
                           "ON a.id = t.id << 20 | t.attempts LEFT JOIN attempt_start s ON "
                           "s.attempt = a.id WHERE t.sweep = ?1 AND t.state = "
                           "'completed' ORDER BY t.id"),
              sweep.value);
  return all<StartRow>(query, [](Query& row) {
    return StartRow{TrialId{row.u64(0)}, row.text(1)};
  });
}

std::vector<WorkerRow> read_workers(Connection& db) {
  Query query(
      db.statement("SELECT id, name, instance, host, version, slots_json, draining, first_seen_ms, "
                   "last_seen_ms, folder, labels_json, memory_bytes, quarantine, quarantined_ms, "
                   "quarantine_cause, drain_at_ms FROM worker ORDER BY id"));
  return all<WorkerRow>(query, [](Query& row) {
    WorkerRow worker;
    worker.id = WorkerId{row.u64(0)};
    worker.name = row.text(1);
    worker.instance = row.text(2);
    worker.host = row.text(3);
    worker.version = row.text(4);
    worker.slots_json = row.text(5);
    worker.draining = row.integer(6) != 0;
    worker.first_seen_ms = row.integer(7);
    worker.last_seen_ms = row.integer(8);
    worker.folder = row.text(9);
    worker.labels = labels_from_json(row.text(10));
    worker.memory_bytes = row.u64(11);
    worker.quarantine = row.text(12);
    worker.quarantined_ms = row.integer(13);
    worker.quarantine_cause = state_or_corrupt(parse_quarantine_cause(row.text(14)));
    worker.drain_at_ms = row.integer(15);
    return worker;
  });
}

std::vector<CheckpointRow> read_checkpoints(Connection& db, TrialId trial) {
  Query query(db.statement(sql_text(kCheckpointColumns, "WHERE trial = ? ORDER BY attempt, step")),
              trial.value);
  return all<CheckpointRow>(query, checkpoint_of);
}

namespace {

constexpr std::string_view kProfileColumns =
    "SELECT trial, attempt, step, layer, sub_block, geometry, statistic, value, standard_error, "
    "tokens, subsamples, linear_tokens, rho, seed, dropped, no_error, subsample_values_json, "
    "subsamples_asked, positions, sequences, sequences_given, subsample_tokens_json, "
    "energies_json FROM profile";

ProfileRow profile_of(Query& row) {
  ProfileRow out;
  out.attempt = {TrialId{row.u64(0)}, row.u32(1)};
  out.step = row.integer(2);
  out.layer = row.i32(3);
  out.sub_block = row.i32(4);
  out.geometry = row.text(5);
  out.statistic = row.text(6);
  out.value = row.real(7);
  if (!row.null(8)) out.standard_error = row.real(8);
  out.tokens = row.i32(9);
  out.subsamples = row.i32(10);
  out.linear_tokens = row.i32(11);
  out.rho = row.real(12);
  out.seed = row.u64(13);
  out.dropped = row.i32(14);
  out.no_error = row.text(15);
  out.subsample_values = numbers_from_json<double>(row.text(16), "values of a profile");
  out.subsamples_asked = row.i32(17);
  out.positions = row.integer(18);
  out.sequences = row.integer(19);
  out.sequences_given = row.integer(20) != 0;
  out.subsample_tokens = numbers_from_json<std::int64_t>(row.text(21), "subsamples of a profile");
  if (!row.null(22)) {
    const auto of = numbers_from_json<double>(row.text(22), "energies of a profile");
    if (of.size() == 6) {
      out.energies = {of[0], of[1], of[2], of[3], of[4], static_cast<std::int64_t>(of[5])};
    }
  }
  return out;
}

}  // namespace

std::vector<ProfileRow> read_profile(Connection& db, TrialId trial) {
  Query query(db.statement(sql_text(kProfileColumns,
                                    "WHERE trial = ?1 AND (attempt, step) = "
                                    "(SELECT attempt, step FROM profile WHERE trial = ?1 "
                                    "ORDER BY attempt DESC, step DESC LIMIT 1) "
                                    "ORDER BY layer, sub_block, geometry, statistic")),
              trial.value);
  return all<ProfileRow>(query, profile_of);
}

namespace {

constexpr std::string_view kMeasurementColumns =
    "SELECT trial, attempt, step, key, data_hash, failure, dimension_failure, wall_ms FROM "
    "measurement";

MeasurementRow measurement_of(Query& row) {
  return MeasurementRow{{TrialId{row.u64(0)}, row.u32(1)},
                        row.integer(2),
                        row.text(3),
                        row.text(4),
                        row.text(5),
                        row.text(6),
                        row.integer(7)};
}

}  // namespace

std::optional<MeasurementRow> read_measurement(Connection& db, TrialId trial) {
  Query query(db.statement(sql_text(kMeasurementColumns,
                                    "WHERE trial = ? ORDER BY attempt DESC, step DESC LIMIT 1")),
              trial.value);
  if (!query.next()) return std::nullopt;
  return measurement_of(query);
}

std::optional<Measured> read_measured(Connection& db, std::string_view key) {
  std::optional<Measured> found;
  {
    Query query(db.statement(sql_text(kMeasurementColumns,
                                      "WHERE key = ? AND failure = '' ORDER BY trial DESC, "
                                      "attempt DESC, step DESC LIMIT 1")),
                key);
    if (!query.next()) return std::nullopt;
    found = Measured{measurement_of(query), {}};
  }
  Query query(db.statement(sql_text(kProfileColumns,
                                    "WHERE trial = ?1 AND attempt = ?2 AND step = ?3 "
                                    "ORDER BY layer, sub_block, geometry, statistic")),
              found->row.attempt.trial.value, found->row.attempt.number, found->row.step);
  found->profile = all<ProfileRow>(query, profile_of);
  return found;
}

std::vector<ScheduleRow> read_schedules(Connection& db, SweepId sweep) {
  Query query(
      db.statement(
          "SELECT sweep, candidate, state, reference, key, measured_trial, "
          "measured_attempt, data_hash, message, request_json, problem_json, solution_json, "
          "raw_widths_json, widths_json, wall_ms FROM schedule WHERE sweep = ? "
          "ORDER BY candidate"),
      sweep.value);
  return all<ScheduleRow>(query, [](Query& row) {
    ScheduleRow out;
    out.sweep = SweepId{row.u64(0)};
    out.candidate = row.u32(1);
    out.state = state_or_corrupt(parse_schedule_state(row.text(2)));
    out.reference = TrialId{row.u64(3)};
    out.key = row.text(4);
    out.measured = {TrialId{row.u64(5)}, row.u32(6)};
    out.data_hash = row.text(7);
    out.message = row.text(8);
    out.request_json = row.text(9);
    out.problem_json = row.text(10);
    out.solution_json = row.text(11);
    out.raw_widths_json = row.text(12);
    out.widths_json = row.text(13);
    out.wall_ms = row.integer(14);
    return out;
  });
}

std::string read_log(Connection& db, AttemptId attempt, std::uint64_t offset,
                     std::size_t bytes_max) {
  std::string bytes;
  if (!may_exist(attempt) || offset > kOffsetMax) return bytes;
  // From the chunk that holds `offset`, or begins at it.
  Query query(
      db.statement("SELECT offset, bytes FROM log_chunk WHERE attempt = ?1 AND "
                   "offset >= coalesce((SELECT max(offset) FROM log_chunk WHERE attempt = ?1 AND "
                   "offset <= ?2), 0) ORDER BY offset"),
      attempt_key(attempt), offset);
  while (bytes.size() < bytes_max && query.next()) {
    const std::uint64_t begin = query.u64(0);
    const std::uint64_t next = offset + bytes.size();
    if (begin > next) break;  // a gap
    const std::string chunk = query.text(1);
    const std::uint64_t skip = next - begin;
    if (skip >= chunk.size()) continue;
    bytes.append(chunk, static_cast<std::size_t>(skip), bytes_max - bytes.size());
  }
  return bytes;
}

std::optional<std::uint64_t> read_log_from(Connection& db, AttemptId attempt,
                                           std::uint64_t offset) {
  if (!may_exist(attempt) || offset > kOffsetMax) return std::nullopt;
  Query query(
      db.statement("SELECT offset FROM log_chunk WHERE attempt = ?1 AND "
                   "offset >= coalesce((SELECT max(offset) FROM log_chunk WHERE attempt = ?1 AND "
                   "offset <= ?2), 0) AND offset + length(bytes) > ?2 ORDER BY offset LIMIT 1"),
      attempt_key(attempt), offset);
  if (!query.next()) return std::nullopt;
  return std::max(offset, query.u64(0));
}

}  // namespace tailor::storage
