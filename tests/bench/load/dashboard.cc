// What the pages of the dashboard ask for, at sizes that peers choke on; and exports.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "tests/bench/load/fleet.h"
#include "tests/bench/load/modes.h"
#include "tests/bench/load/stored_sweep.h"

namespace tailor::load {
namespace {

/// One GET on a connection of its own: the whole answer's body, or an error.
Result<std::string> get(int port, const std::string& target) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{60, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request =
        "GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char block[65536];
    ssize_t got = ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    while (got > 0 && (got = ::recv(fd, block, sizeof block, 0)) > 0) {
      answer.append(block, static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  const std::size_t body = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200") || body == std::string::npos) {
    return error(Code::kUnavailable,
                 fmt::format("GET {}: {}", target,
                             answer.substr(0, std::min<std::size_t>(answer.size(), 300))));
  }
  return answer.substr(body + 4);
}

/// Times of `rounds` equal requests; the first is told apart, since what it computes may be kept.
Result<Json> timed(int port, const std::string& target, int rounds) {
  Times times;
  double first = 0;
  std::size_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    const double begin = steady_seconds();
    TAILOR_ASSIGN_OR_RETURN(const std::string body, get(port, target));
    times.add(steady_seconds() - begin);
    if (i == 0) first = steady_seconds() - begin;
    bytes = body.size();
  }
  return Json{{"first_ms", rounded(1e3 * first)},
              {"p50_ms", rounded(1e3 * times.quantile(0.5))},
              {"p99_ms", rounded(1e3 * times.quantile(0.99))},
              {"bytes", bytes}};
}

/// Everything that the page of a sweep loads, one after the other.
Result<Json> sweep_page(int port, std::uint64_t trials, int rounds) {
  std::vector<std::string> targets = {"/api/v1/sweeps/1?limit=1",
                                      fmt::format("/api/v1/trials?sweep=1&offset=0&limit={}", 50),
                                      "/api/v1/compare?sweep=1&limit=50"};
  for (std::uint64_t i = 0; i < 6 && i * 5 < trials; ++i) {
    targets.push_back(fmt::format("/api/v1/trials/{}", 1 + i * 5));
    targets.push_back(fmt::format("/api/v1/series?trial={}&metric=train_loss", 1 + i * 5));
  }
  Times times;
  double first = 0;
  std::size_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    bytes = 0;
    const double begin = steady_seconds();
    for (const std::string& target : targets) {
      TAILOR_ASSIGN_OR_RETURN(const std::string body, get(port, target));
      bytes += body.size();
    }
    times.add(steady_seconds() - begin);
    if (i == 0) first = steady_seconds() - begin;
  }
  return Json{{"requests", targets.size()},
              {"first_ms", rounded(1e3 * first)},
              {"p50_ms", rounded(1e3 * times.quantile(0.5))},
              {"p99_ms", rounded(1e3 * times.quantile(0.99))},
              {"bytes", bytes}};
}

/// Seconds of a command that ends with 0.
Result<double> timed_command(const std::string& command) {
  const double begin = steady_seconds();
  const int status = std::system(command.c_str());
  if (status != 0) return error(Code::kInternal, fmt::format("{} ended with {}", command, status));
  return steady_seconds() - begin;
}

Result<Json> stored_figure(const Options& options, const DashboardOptions& dashboard,
                           std::uint64_t trials) {
  const std::string path = options.folder + fmt::format("/dashboard-{}.db", trials);
  StoredSweep stored;
  stored.trials = trials;
  stored.seeds = dashboard.seeds;
  stored.points = dashboard.points;
  stored.trials_with_points = std::min<std::uint64_t>(trials, 10'000);
  Json out = {{"trials", trials},
              {"points", stored.trials_with_points * static_cast<std::uint64_t>(stored.points)}};
  const double begin = steady_seconds();
  if (file_bytes(path) == 0) TAILOR_RETURN_IF_ERROR(store_sweep(path, stored));
  out["made_in_s"] = rounded(steady_seconds() - begin);
  out["file_mb"] = rounded(static_cast<double>(file_bytes(path)) / 1e6);
  TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options, path));
  out["before"] = machine_now(coordinator->folder());
  const int port = coordinator->http_port();
  const int rounds = dashboard.rounds;
  const std::uint64_t deep = trials - std::min<std::uint64_t>(trials, 100);
  const std::vector<std::pair<std::string, std::string>> pages = {
      {"index", "/"},
      {"sweeps", "/api/v1/sweeps"},
      {"sweep", "/api/v1/sweeps/1?limit=1"},
      {"candidates", "/api/v1/sweeps/1?limit=100"},
      {"trials", "/api/v1/trials?sweep=1&limit=50"},
      {"trials_last_page", fmt::format("/api/v1/trials?sweep=1&limit=50&offset={}", deep)},
      {"trials_by_objective", "/api/v1/trials?sweep=1&limit=50&order=objective"},
      {"trials_by_state", "/api/v1/trials?sweep=1&limit=50&order=state&state=completed"},
      {"trial", fmt::format("/api/v1/trials/{}", trials / 2 + 1)},
      {"series", "/api/v1/series?trial=7&metric=train_loss"},
      {"compare", "/api/v1/compare?sweep=1&limit=50"},
      {"compare_by_difference", "/api/v1/compare?sweep=1&order=difference"},
      {"events", "/api/v1/events?tail=100"},
      {"workers", "/api/v1/workers"},
      {"metrics", "/metrics"}};
  Json reads = Json::object();
  TAILOR_ASSIGN_OR_RETURN(reads["sweep_page"], sweep_page(port, trials, rounds));
  for (const auto& [name, target] : pages) {
    auto figure = timed(port, target, rounds);
    // A page that is refused is a figure too: what is wrong with it.
    reads[name] =
        figure.has_value() ? *std::move(figure) : Json{{"error", figure.error().message()}};
  }
  out["reads"] = std::move(reads);
  if (!dashboard.tailor.empty()) {
    for (const char* what : {"trials", "curves"}) {
      const std::string file = coordinator->folder() + "/export.csv";
      auto seconds = timed_command(
          fmt::format("'{}' --coordinator {} --timeout 120 export 1 --what {} -o '{}' 2>'{}.log'",
                      dashboard.tailor, coordinator->grpc_address(), what, file, file));
      out[std::string("export_") + what] =
          seconds.has_value() ? Json{{"seconds", rounded(*seconds)}, {"bytes", file_bytes(file)}}
                              : Json{{"error", seconds.error().message()}};
    }
  }
  out["rss_mb"] = rounded(coordinator->usage().rss_mb);
  out["after"] = machine_now(coordinator->folder());
  coordinator->stop();
  if (!options.keep) {
    for (const char* end : {"", "-wal", "-shm", ".lock"}) std::remove((path + end).c_str());
  }
  return out;
}

/// One curve while 5,000 series are being written.
Result<Json> live_figure(const Options& options, int rounds) {
  constexpr std::size_t kWorkers = 625;
  constexpr int kValues = 8;
  TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options));
  Client client(coordinator->grpc_address());
  std::atomic<std::uint64_t> acked{0};
  std::atomic<std::uint64_t> trial{0};
  Fleet fleet(coordinator->grpc_address(), "bench", kWorkers, 1,
              [&](SimulatedWorker& worker, const v1::CoordinatorMessage& message) {
                if (message.has_reports_ack()) ++acked;
                if (!message.has_assign()) return;
                const v1::AttemptRef ref = ref_of(message.assign().spec());
                trial = ref.trial();
                v1::WorkerMessage reports;
                *reports.mutable_reports()->mutable_ref() = ref;
                for (std::uint64_t i = 1; i <= 20; ++i) {
                  *reports.mutable_reports()->add_reports() =
                      metric_report(i, static_cast<std::int64_t>(i), kValues, true);
                }
                worker.send(std::move(reports));
              });
  TAILOR_RETURN_IF_ERROR(status_of(fleet.connect(60)));
  TAILOR_RETURN_IF_ERROR(status_of(client.submit("live", kWorkers, 1)));
  const double limit = steady_seconds() + 60;
  while (acked < kWorkers && steady_seconds() < limit) sleep_s(0.02);
  Json out = {{"series", acked.load() * kValues}};
  TAILOR_ASSIGN_OR_RETURN(
      out["one_curve"],
      timed(coordinator->http_port(),
            fmt::format("/api/v1/series?trial={}&metric=train_loss", trial.load()), rounds));
  return out;
}

}  // namespace

Result<Json> run_dashboard(const Options& options, const DashboardOptions& dashboard) {
  if (!options.coordinator.empty()) {
    return error(Code::kInvalidArgument,
                 "dashboard makes its own databases: leave --coordinator out");
  }
  Json figures = Json::array();
  for (const std::uint64_t trials : dashboard.trials) {
    TAILOR_ASSIGN_OR_RETURN(Json figure, stored_figure(options, dashboard, trials));
    figures.push_back(std::move(figure));
  }
  Json out = {{"mode", "dashboard"}, {"figures", std::move(figures)}};
  TAILOR_ASSIGN_OR_RETURN(out["live"], live_figure(options, dashboard.rounds));
  return out;
}

}  // namespace tailor::load
