// What the store costs: bytes of write-ahead log and time of the batches that the engine makes,
// bytes of file, starts, pages and exports of large files. One JSON object a case.
//
//   storage_bench CASE [NUMBER...] [--folder DIR] [--page BYTES]
//     trials CLIENTS TRIALS    no-op trials: assign, one report, end
//     points SERIES BATCH N    N points in batches, round the series; WAL, file and time
//     single STREAMS N         reports of one point, as many in a batch as half the streams
//     sealing WORKERS N        N trials of 4 series x 20 points; what is left to seal, reads
//     live SERIES              one curve of 100 points while so many series are live
//     open TRIALS              start with so many ended trials in the file; memory
//     pages TRIALS             every page of a sweep of so many trials
//     curves TRIALS POINTS     all curves of a sweep, POINTS a trial
//
// Bytes of the log are counted with a reader that stays at the start, so that the log is never
// begun anew; times are those of a second run without one.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "storage/sqlite_store.h"

namespace {

using namespace tailor;           // NOLINT
using namespace tailor::storage;  // NOLINT

std::string g_folder = "/tmp";  // where the database is made
std::uint32_t g_page_bytes = SqliteOptions().page_bytes;

class Disk {
 public:
  Disk() {
    const std::string pattern = g_folder + "/tailor-storage-bench-XXXXXX";
    std::vector<char> name(pattern.begin(), pattern.end());
    name.push_back('\0');
    TAILOR_CHECK(::mkdtemp(name.data()) != nullptr, "{}", pattern);
    folder_ = name.data();
  }
  ~Disk() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  std::string path() const { return folder_ + "/bench.db"; }
  std::unique_ptr<Store> open() const {
    auto store =
        open_sqlite(path(), {.allow_network_file_system = true, .page_bytes = g_page_bytes});
    TAILOR_CHECK(store.has_value(), "{}", status_of(store).to_string());
    return *std::move(store);
  }
  std::uint64_t bytes(const std::string& suffix = "") const {
    std::error_code ec;
    const std::uintmax_t size = std::filesystem::file_size(path() + suffix, ec);
    return ec ? 0 : size;
  }

 private:
  std::string folder_;
};

/// Keeps the log from being begun anew while it lives.
class LogCounter {
 public:
  explicit LogCounter(const Disk& disk) : disk_(disk), reader_(disk.path(), SQLite::OPEN_READONLY) {
    reader_.exec("BEGIN");
    reader_.execAndGet("SELECT count(*) FROM sweep");
    begin_ = disk_.bytes("-wal");
  }
  std::uint64_t bytes() const { return disk_.bytes("-wal") - begin_; }

 private:
  const Disk& disk_;
  SQLite::Database reader_;
  std::uint64_t begin_ = 0;
};

void must(const Status& status) { TAILOR_CHECK(status.is_ok(), "{}", status.to_string()); }

double seconds_of(const std::function<void()>& work) {
  const double begin = steady_seconds();
  work();
  return steady_seconds() - begin;
}

/// Wall times of commits.
class CommitTimes {
 public:
  void commit(Store& store, const std::vector<Mutation>& batch) {
    const double begin = steady_seconds();
    must(store.commit(batch));
    ms_.push_back((steady_seconds() - begin) * 1e3);
  }
  std::string json() {
    std::sort(ms_.begin(), ms_.end());
    const auto at = [&](double q) {
      return ms_[static_cast<std::size_t>(q * static_cast<double>(ms_.size() - 1))];
    };
    return fmt::format(R"("commits":{},"commit_ms":{{"p50":{:.3f},"p99":{:.3f},"max":{:.3f}}})",
                       ms_.size(), at(0.5), at(0.99), at(1.0));
  }

 private:
  std::vector<double> ms_;
};

constexpr WallMs kWall = 1'764'500'000'000;

SweepRow sweep_row(std::uint64_t id) {
  SweepRow row;
  row.id = SweepId{id};
  row.name = fmt::format("sweep-{}", id);
  row.spec_hash = std::string(64, 'a');
  row.base_dir = "/data";
  row.toml = std::string(1500, '#');
  row.created_ms = kWall;
  return row;
}

CandidateRow candidate_row(std::uint64_t sweep, std::uint32_t index) {
  return {SweepId{sweep},
          index,
          fmt::format("ffn.k={}", index),
          fmt::format(R"({{"ffn.d_h":{},"ffn.k":4}})", index),
          R"({"d_model":256,"family":"llama","ffn":{"d_ff":688,"d_h":[172,172,172,172],"k":4},)"
          R"("head_dim":64,"layers":6,"vocab_size":4096})",
          std::string(64, 'b'),
          6'800'000,
          8'900'000};
}

TrialRow trial_row(std::uint64_t id, std::uint64_t sweep, std::uint32_t candidate,
                   std::uint64_t seed) {
  TrialRow row;
  row.id = TrialId{id};
  row.sweep = SweepId{sweep};
  row.candidate = candidate;
  row.seed = seed;
  row.failures_json = "{}";
  row.created_ms = kWall;
  return row;
}

constexpr std::uint64_t kSeeds = 5;

/// A sweep of `trials` queued trials, as a submission makes it.
void submit(Store& store, std::uint64_t trials, std::uint64_t sweep = 1, std::uint64_t first = 1) {
  std::vector<Mutation> batch{sweep_row(sweep)};
  for (std::uint64_t i = 0; i < trials; ++i) {
    const auto candidate = static_cast<std::uint32_t>(i / kSeeds);
    if (i % kSeeds == 0) batch.emplace_back(candidate_row(sweep, candidate));
    batch.emplace_back(trial_row(first + i, sweep, candidate, 1'000'000 + i % kSeeds));
    batch.emplace_back(
        EventRow{0, kWall, EventKind::kTrialQueued, SweepId{sweep}, TrialId{first + i}, 0, {}, ""});
    if (batch.size() > 20'000) {
      must(store.commit(batch));
      batch.clear();
    }
  }
  batch.emplace_back(CountersRow{sweep + 1, first + trials, 65, 1, 0, ""});
  must(store.commit(batch));
}

void add_workers(Store& store, std::uint64_t count) {
  std::vector<Mutation> batch;
  for (std::uint64_t id = 1; id <= count; ++id) {
    WorkerRow row;
    row.id = WorkerId{id};
    row.name = fmt::format("node{}", id);
    row.instance = "instance";
    row.host = "host";
    row.version = "0.1.0";
    row.slots_json = R"([{"index":0,"kind":"cpu","name":"cpu","threads":1}])";
    row.first_seen_ms = row.last_seen_ms = kWall;
    batch.emplace_back(row);
  }
  must(store.commit(batch));
}

/// One client: takes trials one after the other, as the core writes them.
class Client {
 public:
  Client(std::uint64_t worker, std::uint64_t* next_trial, std::uint64_t* next_token)
      : worker_{worker}, next_trial_(next_trial), next_token_(next_token) {}

  void assign(std::vector<Mutation>& batch) {
    const std::uint64_t id = (*next_trial_)++;
    trial_ = trial_row(id, 1, static_cast<std::uint32_t>((id - 1) / kSeeds),
                       1'000'000 + (id - 1) % kSeeds);
    trial_.state = TrialState::kRunning;
    trial_.attempts = 1;
    attempt_ = {};
    attempt_.id = {trial_.id, 1};
    attempt_.token = (*next_token_)++;
    attempt_.worker = worker_;
    attempt_.slots = {0};
    attempt_.assigned_ms = kWall;
    batch.emplace_back(trial_);
    batch.emplace_back(attempt_);
    batch.emplace_back(
        EventRow{0, kWall, EventKind::kAttemptAssigned, SweepId{1}, trial_.id, 1, worker_, ""});
    reported_ = false;
  }
  /// The next message: the report, or the end (and the assignment that follows in its step).
  /// True when a trial ended.
  bool step(std::vector<Mutation>& batch) {
    if (!reported_) {
      report(batch);
      reported_ = true;
      return false;
    }
    end(batch);
    assign(batch);
    return true;
  }

  void report(std::vector<Mutation>& batch) {
    attempt_.acked_sequence = 2;
    attempt_.state = AttemptState::kRunning;
    attempt_.started_json =
        R"({"pid":12345,"program":"tailor-trainer 0.1.0","device":"cpu","threads":1,)"
        R"("data_hash":")" +
        std::string(64, 'c') + R"("})";
    trial_.started_ms = kWall + 5;
    batch.emplace_back(trial_);
    batch.emplace_back(attempt_);
    batch.emplace_back(MetricPoint{trial_.id, 1, "validation_loss", 1, 1024, kWall + 6, 3.2517});
    batch.emplace_back(
        EventRow{0, kWall, EventKind::kAttemptStarted, SweepId{1}, trial_.id, 1, worker_, ""});
  }
  void end(std::vector<Mutation>& batch) {
    attempt_.acked_sequence = 3;
    attempt_.state = AttemptState::kEnded;
    attempt_.end_class = protocol::EndClass::kCompleted;
    attempt_.ended_ms = kWall + 9;
    trial_.state = TrialState::kCompleted;
    trial_.end_class = protocol::EndClass::kCompleted;
    trial_.objective = 3.2517 + static_cast<double>(trial_.id.value * 7919 % 10'007) / 1e4;
    trial_.final_values = {{"validation_loss", *trial_.objective}};
    trial_.ended_ms = kWall + 9;
    batch.emplace_back(trial_);
    batch.emplace_back(attempt_);
    batch.emplace_back(EventRow{0, kWall, EventKind::kAttemptEnded, SweepId{1}, trial_.id, 1,
                                worker_, "completed"});
    batch.emplace_back(
        EventRow{0, kWall, EventKind::kTrialCompleted, SweepId{1}, trial_.id, 1, {}, ""});
  }

 private:
  const WorkerId worker_;
  std::uint64_t* const next_trial_;
  std::uint64_t* const next_token_;
  TrialRow trial_;
  AttemptRow attempt_;
  bool reported_ = false;
};

/// What a batch says twice of one row is written once, as the core's driver has it.
std::vector<Mutation> coalesced(std::vector<Mutation> batch, std::uint64_t next_trial,
                                std::uint64_t next_token, bool assigned) {
  if (assigned) batch.emplace_back(CountersRow{2, next_trial, 65, next_token, 0, ""});
  return batch;
}

void run_trials(std::uint64_t clients, std::uint64_t trials, bool count_log) {
  const Disk disk;
  auto store = disk.open();
  std::uint64_t next_trial = 1;
  std::uint64_t next_token = 1;
  add_workers(*store, clients);
  submit(*store, trials + 2 * clients);
  const std::uint64_t total = trials + 2 * clients + 1;
  std::vector<Client> all;
  for (std::uint64_t i = 1; i <= clients; ++i) all.emplace_back(i, &next_trial, &next_token);
  std::vector<Mutation> first;
  for (Client& client : all) client.assign(first);
  must(store->commit(coalesced(std::move(first), total, next_token, true)));
  // Group commit: while one half of the clients waits for its commit, the other half sends.
  const std::uint64_t each = std::max<std::uint64_t>(1, clients / 2);
  std::optional<LogCounter> log;
  if (count_log) log.emplace(disk);
  CommitTimes times;
  std::uint64_t ended = 0;
  std::uint64_t turn = 0;
  const double cpu = process_cpu_seconds();
  const double seconds = seconds_of([&] {
    while (ended < trials) {
      std::vector<Mutation> batch;
      bool assigned = false;
      for (std::uint64_t i = 0; i < each; ++i) {
        if (all[turn++ % clients].step(batch)) {
          ++ended;
          assigned = true;
        }
      }
      times.commit(*store, coalesced(std::move(batch), total, next_token, assigned));
    }
  });
  const double cpu_ms = (process_cpu_seconds() - cpu) * 1e3 / static_cast<double>(ended);
  if (count_log) {
    fmt::print(R"({{"case":"trials","clients":{},"trials":{},"wal_bytes_per_trial":{}}})"
               "\n",
               clients, ended, log->bytes() / ended);
    return;
  }
  fmt::print(R"({{"case":"trials","clients":{},"trials":{},"trials_per_s":{:.0f},)"
             R"("cpu_ms_per_trial":{:.3f},{}}})"
             "\n",
             clients, ended, static_cast<double>(ended) / seconds, cpu_ms, times.json());
}

void trials_case(const std::vector<std::uint64_t>& numbers) {
  run_trials(numbers.at(0), numbers.at(1), true);
  run_trials(numbers.at(0), numbers.at(1), false);
}

void begin_attempts(Store& store, std::uint64_t count) {
  add_workers(store, 64);
  submit(store, count);
  std::vector<Mutation> batch;
  std::uint64_t trial = 1;
  std::uint64_t token = 1;
  for (std::uint64_t i = 0; i < count; ++i) Client(1 + i % 64, &trial, &token).assign(batch);
  batch.emplace_back(CountersRow{2, count + 1, 65, token, 0, ""});
  must(store.commit(batch));
}

AttemptRow running(std::uint64_t trial) {
  AttemptRow row;
  row.id = {TrialId{trial}, 1};
  row.token = trial;
  row.worker = WorkerId{1 + (trial - 1) % 64};
  row.slots = {0};
  row.state = AttemptState::kRunning;
  row.assigned_ms = kWall;
  return row;
}

MetricPoint point_of(std::uint64_t trial, std::int64_t step, bool narrow) {
  const double value = 3.0 + 5.0 / (1.0 + 0.01 * static_cast<double>(step)) +
                       1e-3 * std::sin(static_cast<double>(step * 131 + static_cast<long>(trial)));
  return {TrialId{trial},
          1,
          "training_loss",
          step * 10,
          step * 10 * 4096,
          kWall + step * 1003 + static_cast<std::int64_t>(trial % 7),
          narrow ? static_cast<double>(static_cast<float>(value)) : value};
}

void run_points(std::uint64_t series, std::uint64_t batch_size, std::uint64_t total, bool count_log,
                bool narrow) {
  const Disk disk;
  auto store = disk.open();
  begin_attempts(*store, series);
  std::optional<LogCounter> log;
  if (count_log) log.emplace(disk);
  CommitTimes times;
  // A worker's report of a few steps of one trial after the other.
  constexpr std::int64_t kRun = 10;
  std::map<std::uint64_t, std::int64_t> steps;
  std::uint64_t turn = 0;
  std::uint64_t made = 0;
  const double cpu = process_cpu_seconds();
  const double seconds = seconds_of([&] {
    while (made < total) {
      std::vector<Mutation> batch;
      std::uint64_t points = 0;
      while (points < batch_size) {
        const std::uint64_t trial = 1 + turn++ % series;
        AttemptRow row = running(trial);
        for (std::int64_t i = 0; i < kRun && points < batch_size; ++i, ++points) {
          batch.emplace_back(point_of(trial, ++steps[trial], narrow));
        }
        row.acked_sequence = static_cast<std::uint64_t>(steps[trial]);
        batch.emplace_back(row);
      }
      times.commit(*store, batch);
      made += points;
    }
  });
  const double cpu_us = (process_cpu_seconds() - cpu) * 1e6 / static_cast<double>(made);
  if (count_log) {
    fmt::print(
        R"({{"case":"points","series":{},"batch":{},"points":{},"wal_bytes_per_point":{:.1f}}})"
        "\n",
        series, batch_size, made, static_cast<double>(log->bytes()) / static_cast<double>(made));
    return;
  }
  std::vector<Mutation> ends;
  for (const auto& [trial, step] : steps) {
    AttemptRow row = running(trial);
    row.state = AttemptState::kEnded;
    ends.emplace_back(row);
  }
  must(store->commit(ends));
  while (store->maintain().value_or(false)) {
  }
  store.reset();
  fmt::print(
      R"({{"case":"points","series":{},"batch":{},"points":{},"f32":{},"points_per_s":{:.0f},)"
      R"("cpu_us_per_point":{:.2f},"file_bytes_per_point":{:.1f},{}}})"
      "\n",
      series, batch_size, made, narrow, static_cast<double>(made) / seconds, cpu_us,
      static_cast<double>(disk.bytes()) / static_cast<double>(made), times.json());
}

void points_case(const std::vector<std::uint64_t>& numbers) {
  run_points(numbers.at(0), numbers.at(1), numbers.at(2), true, false);
  run_points(numbers.at(0), numbers.at(1), numbers.at(2), false, false);
  run_points(numbers.at(0), numbers.at(1), numbers.at(2), false, true);
}

void run_single(std::uint64_t streams, std::uint64_t total, bool count_log) {
  const Disk disk;
  auto store = disk.open();
  begin_attempts(*store, streams);
  std::optional<LogCounter> log;
  if (count_log) log.emplace(disk);
  CommitTimes times;
  const std::uint64_t each = std::max<std::uint64_t>(1, streams / 2);
  std::map<std::uint64_t, std::int64_t> steps;
  std::uint64_t turn = 0;
  std::uint64_t made = 0;
  const double seconds = seconds_of([&] {
    while (made < total) {
      std::vector<Mutation> batch;
      for (std::uint64_t i = 0; i < each; ++i) {
        const std::uint64_t trial = 1 + turn++ % streams;
        batch.emplace_back(point_of(trial, ++steps[trial], false));
        AttemptRow row = running(trial);
        row.acked_sequence = static_cast<std::uint64_t>(steps[trial]);
        batch.emplace_back(row);
      }
      times.commit(*store, batch);
      made += each;
    }
  });
  if (count_log) {
    fmt::print(R"({{"case":"single","streams":{},"points":{},"wal_bytes_per_point":{}}})"
               "\n",
               streams, made, log->bytes() / made);
    return;
  }
  fmt::print(R"({{"case":"single","streams":{},"points":{},"points_per_s":{:.0f},{}}})"
             "\n",
             streams, made, static_cast<double>(made) / seconds, times.json());
}

void single_case(const std::vector<std::uint64_t>& numbers) {
  run_single(numbers.at(0), numbers.at(1), true);
  run_single(numbers.at(0), numbers.at(1), false);
}

std::uint64_t resident_kib() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long size = 0;
  unsigned long resident = 0;
  TAILOR_CHECK(file != nullptr && std::fscanf(file, "%lu %lu", &size, &resident) == 2, "statm");
  std::fclose(file);
  return resident * 4;
}

/// `trials` that ended, of one sweep that ended, with `points` each.
void fill_ended(Store& store, std::uint64_t trials, int points = 0) {
  add_workers(store, 1);
  submit(store, trials);
  std::uint64_t next_trial = 1;
  std::uint64_t next_token = 1;
  std::vector<Mutation> batch;
  for (std::uint64_t id = 1; id <= trials; ++id) {
    Client client(1, &next_trial, &next_token);
    client.assign(batch);
    client.report(batch);
    for (int i = 0; i < points; ++i) batch.emplace_back(point_of(id, i + 1, false));
    client.end(batch);
    if (batch.size() > 20'000 || id == trials) {
      must(store.commit(batch));
      batch.clear();
    }
  }
  SweepRow over = sweep_row(1);
  over.state = SweepState::kCompleted;
  must(store.commit(std::vector<Mutation>{over, CountersRow{2, trials + 1, 2, next_token, 0, ""}}));
  while (store.maintain().value_or(false)) {
  }
}

void open_case(const std::vector<std::uint64_t>& numbers) {
  const Disk disk;
  {
    auto store = disk.open();
    fill_ended(*store, numbers.at(0));
  }
  const std::uint64_t before = resident_kib();
  std::unique_ptr<Store> store;
  std::size_t sweeps = 0;
  const double seconds = seconds_of([&] {
    store = disk.open();
    const auto snapshot = store->load_open();
    TAILOR_CHECK(snapshot.has_value(), "{}", status_of(snapshot).to_string());
    sweeps = snapshot->sweeps.size();
  });
  fmt::print(R"({{"case":"open","ended_trials":{},"open_sweeps":{},"file_bytes":{},)"
             R"("seconds":{:.4f},"resident_kib":{},"resident_more_kib":{}}})"
             "\n",
             numbers.at(0), sweeps, disk.bytes(), seconds, resident_kib(),
             resident_kib() - std::min(before, resident_kib()));
}

void pages_case(const std::vector<std::uint64_t>& numbers) {
  const Disk disk;
  {
    auto store = disk.open();
    fill_ended(*store, numbers.at(0));
  }
  const auto store = disk.open();
  const auto time = [&](const std::string& what, const std::function<void()>& read) {
    const double first = seconds_of(read);
    const double again = seconds_of(read);
    fmt::print(R"({{"case":"pages","trials":{},"page":"{}","ms_first":{:.2f},"ms":{:.2f}}})"
               "\n",
               numbers.at(0), what, first * 1e3, again * 1e3);
  };
  TrialQuery query;
  query.sweep = SweepId{1};
  for (const char* order : {"id", "objective", "state", "candidate"}) {
    for (const bool completed : {false, true}) {
      for (const std::uint64_t offset : {std::uint64_t{0}, numbers.at(0) - 200}) {
        query.order = order;
        query.offset = offset;
        query.state.reset();
        if (completed) query.state = TrialState::kCompleted;
        time(fmt::format("trials by {}{} from {}", order, completed ? ", completed" : "", offset),
             [&] { TAILOR_CHECK(store->trials(query)->trials.size() == 100, "page"); });
      }
    }
  }
  query.order = "id";
  query.offset = 0;
  query.state = TrialState::kFailed;
  time("trials by id, failed", [&] { TAILOR_CHECK(store->trials(query)->trials.empty(), ""); });
  query.state.reset();
  query.after = TrialId{numbers.at(0) - 200};
  time("trials after an id", [&] { TAILOR_CHECK(store->trials(query)->trials.size() == 100, ""); });
  time("candidates", [&] {
    TAILOR_CHECK(
        store->candidate_page(SweepId{1}, numbers.at(0) / kSeeds - 100, 100)->candidates.size() ==
            100,
        "");
  });
  time("counts", [&] { TAILOR_CHECK(store->trial_counts(SweepId{1})->total() > 0, ""); });
  time("events of a trial", [&] {
    TAILOR_CHECK(store->events(0, 100, {}, TrialId{numbers.at(0) / 2})->size() == 5, "");
  });
  time("events of the sweep",
       [&] { TAILOR_CHECK(store->events(numbers.at(0), 100, SweepId{1})->size() == 100, ""); });
  time("one trial", [&] { TAILOR_CHECK(store->attempts(TrialId{77})->size() == 1, ""); });
}

void curves_case(const std::vector<std::uint64_t>& numbers) {
  const Disk disk;
  const auto store = disk.open();
  fill_ended(*store, numbers.at(0), static_cast<int>(numbers.at(1)));
  std::size_t points = 0;
  std::size_t pages = 0;
  const double seconds = seconds_of([&] {
    CurveQuery query;
    query.sweep = SweepId{1};
    for (;;) {
      const auto page = store->curves(query);
      TAILOR_CHECK(page.has_value(), "{}", status_of(page).to_string());
      ++pages;
      for (const TrialCurves& trial : page->trials) {
        for (const Series& series : trial.series) points += series.steps.size();
      }
      if (!page->next) break;
      query.after = *page->next;
    }
  });
  fmt::print(R"({{"case":"curves","trials":{},"points":{},"pages":{},"seconds":{:.3f},)"
             R"("file_bytes":{}}})"
             "\n",
             numbers.at(0), points, pages, seconds, disk.bytes());
}

void sealing_case(const std::vector<std::uint64_t>& numbers) {
  const Disk disk;
  auto store = disk.open();
  const std::uint64_t workers = numbers.at(0);
  const std::uint64_t trials = numbers.at(1);
  begin_attempts(*store, trials);
  CommitTimes times;
  std::uint64_t most = 0;
  std::uint64_t made = 0;
  const double seconds = seconds_of([&] {
    for (std::uint64_t id = 1; id <= trials;) {
      std::vector<Mutation> batch;
      for (std::uint64_t i = 0; i < workers / 2 && id <= trials; ++i, ++id) {
        for (const char* name : {"training_loss", "validation_loss", "learning_rate", "norm"}) {
          for (std::int64_t step = 1; step <= 20; ++step, ++made) {
            batch.emplace_back(point_of(id, step, false));
            std::get<MetricPoint>(batch.back()).name = name;
          }
        }
        AttemptRow ended = running(id);
        ended.state = AttemptState::kEnded;
        batch.emplace_back(ended);
      }
      times.commit(*store, batch);
      most = std::max(most, store->health().unsealed_points);
    }
  });
  const double drain = seconds_of([&] {
    while (store->maintain().value_or(false)) {
    }
  });
  const double read = seconds_of(
      [&] { TAILOR_CHECK(store->series(TrialId{trials}, "norm")->steps.size() == 20, "read"); });
  const std::uint64_t left = store->health().unsealed_points;
  store.reset();
  const double open = seconds_of([&] { store = disk.open(); });
  fmt::print(
      R"({{"case":"sealing","trials":{},"points":{},"points_per_s":{:.0f},"unsealed_most":{},)"
      R"("drain_s":{:.3f},"unsealed":{},"read_ms":{:.3f},"open_s":{:.3f},)"
      R"("file_bytes_per_point":{:.1f},{}}})"
      "\n",
      trials, made, static_cast<double>(made) / seconds, most, drain, left, read * 1e3, open,
      static_cast<double>(disk.bytes()) / static_cast<double>(made), times.json());
}

/// One curve while so many series are live.
void live_case(const std::vector<std::uint64_t>& numbers) {
  const Disk disk;
  auto store = disk.open();
  begin_attempts(*store, numbers.at(0));
  for (std::int64_t step = 1; step <= 100; ++step) {
    std::vector<Mutation> batch;
    for (std::uint64_t id = 1; id <= numbers.at(0); ++id) {
      batch.emplace_back(point_of(id, step, false));
    }
    must(store->commit(batch));
  }
  const auto read = [&] {
    TAILOR_CHECK(store->series(TrialId{numbers.at(0) / 2}, "training_loss")->steps.size() == 100,
                 "read");
  };
  const double first = seconds_of(read);
  const double again = seconds_of(read);
  store.reset();
  const double open = seconds_of([&] { store = disk.open(); });
  fmt::print(R"({{"case":"live","series":{},"ms_first":{:.3f},"ms":{:.3f},"open_s":{:.3f}}})"
             "\n",
             numbers.at(0), first * 1e3, again * 1e3, open);
}

struct Case {
  std::string_view name;
  std::size_t numbers;
  void (*run)(const std::vector<std::uint64_t>&);
};
constexpr Case kCases[] = {{"trials", 2, trials_case}, {"points", 3, points_case},
                           {"single", 2, single_case}, {"sealing", 2, sealing_case},
                           {"open", 1, open_case},     {"pages", 1, pages_case},
                           {"curves", 2, curves_case}, {"live", 1, live_case}};

}  // namespace

int main(int argc, char** argv) {
  std::string name;
  std::vector<std::uint64_t> numbers;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--folder" && i + 1 < argc) {
      g_folder = argv[++i];
    } else if (argument == "--page" && i + 1 < argc) {
      g_page_bytes = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else if (name.empty()) {
      name = argument;
    } else {
      numbers.push_back(std::strtoull(argument.c_str(), nullptr, 10));
    }
  }
  for (const Case& known : kCases) {
    if (known.name != name || known.numbers != numbers.size()) continue;
    known.run(numbers);
    return 0;
  }
  fmt::print(
      stderr,
      "storage_bench CASE NUMBER... [--folder DIR] [--page BYTES]; cases and their numbers:");
  for (const Case& known : kCases) fmt::print(stderr, " {}({})", known.name, known.numbers);
  fmt::print(stderr, "\n");
  return 2;
}
