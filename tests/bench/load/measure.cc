#include "tests/bench/load/measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"

namespace tailor::load {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The number behind "NAME:" in a /proc file.
std::uint64_t number_after(const std::string& text, const std::string& name) {
  const std::size_t at = text.find("\n" + name);
  const std::size_t begin = text.starts_with(name) ? 0 : at == std::string::npos ? at : at + 1;
  if (begin == std::string::npos) return 0;
  return std::strtoull(text.c_str() + begin + name.size(), nullptr, 10);
}

}  // namespace

double rounded(double value, int digits) {
  if (!std::isfinite(value) || value == 0) return value;
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

void Times::add(double seconds) {
  const std::scoped_lock lock(mutex_);
  seconds_.push_back(static_cast<float>(seconds));
}

void Times::clear() {
  const std::scoped_lock lock(mutex_);
  seconds_.clear();
}

std::size_t Times::count() const {
  const std::scoped_lock lock(mutex_);
  return seconds_.size();
}

double Times::quantile(double share) const {
  const std::scoped_lock lock(mutex_);
  if (seconds_.empty()) return 0;
  const auto last = static_cast<double>(seconds_.size() - 1);
  const auto place = static_cast<std::ptrdiff_t>(std::ceil(share * last));
  std::nth_element(seconds_.begin(), seconds_.begin() + place, seconds_.end());
  return seconds_[static_cast<std::size_t>(place)];
}

Json Times::json() const {
  const std::size_t n = count();
  const auto ms = [&](double share) {
    return n == 0 ? Json(nullptr) : Json(rounded(1e3 * quantile(share)));
  };
  return {{"count", n},
          {"p50_ms", ms(0.5)},
          {"p90_ms", ms(0.9)},
          {"p99_ms", ms(0.99)},
          {"max_ms", ms(1)}};
}

Usage usage_of(pid_t pid) {
  const std::string folder = fmt::format("/proc/{}/", pid);
  Usage usage;
  const std::string stat = text_of(folder + "stat");
  // Fields 14 and 15 (user, system), counted behind the program's name, which may hold anything.
  if (const std::size_t name = stat.rfind(')'); name != std::string::npos) {
    std::stringstream fields(stat.substr(name + 2));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    usage.cpu_s = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  const std::string status = text_of(folder + "status");
  usage.rss_mb = static_cast<double>(number_after(status, "VmRSS:")) / 1024;
  usage.rss_peak_mb = static_cast<double>(number_after(status, "VmHWM:")) / 1024;
  usage.threads = number_after(status, "Threads:");
  usage.written_bytes = number_after(text_of(folder + "io"), "wchar:");
  return usage;
}

Json measure_disk(const std::string& folder, double seconds) {
  const std::string path = folder + "/disk-probe";
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  const std::string block(4096, 'x');
  Times times;
  const double begin = steady_seconds();
  double now = begin;
  while (now - begin < seconds) {
    if (::write(fd, block.data(), block.size()) < 0 || ::fdatasync(fd) != 0) break;
    const double after = steady_seconds();
    times.add(after - now);
    now = after;
  }
  ::close(fd);
  ::unlink(path.c_str());
  const double spent = std::max(now - begin, 1e-9);
  return {{"syncs_per_s", std::llround(static_cast<double>(times.count()) / spent)},
          {"p50_us", std::llround(1e6 * times.quantile(0.5))},
          {"p99_us", std::llround(1e6 * times.quantile(0.99))}};
}

Json machine_now(const std::string& folder) {
  double loads[1] = {0};
  (void)::getloadavg(loads, 1);
  return {{"load1", rounded(loads[0], 3)},
          {"processors", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"disk", measure_disk(folder)}};
}

std::uint64_t file_bytes(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace tailor::load
