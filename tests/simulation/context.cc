#include "tests/simulation/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tailor::simulation {

Context::Context(std::uint64_t seed, const Faults& f, bool print)
    : faults(f), rng(Rng::split(seed, "world")), print_(print) {}

void Context::after(std::int64_t delay_ms, std::function<void()> act) {
  heap_.push_back({now() + std::max<std::int64_t>(delay_ms, 0), next_order_++, std::move(act)});
  std::push_heap(heap_.begin(), heap_.end());
}

bool Context::run_next() {
  if (heap_.empty() || !failure_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end());
  Due due = std::move(heap_.back());
  heap_.pop_back();
  clock.advance(due.time - now());
  due.act();
  return failure_.empty();
}

std::int64_t Context::next_time() const {
  return heap_.empty() ? std::numeric_limits<std::int64_t>::max() : heap_.front().time;
}

std::int64_t Context::exponential(std::int64_t mean_ms) {
  const double drawn = -static_cast<double>(mean_ms) * std::log(1.0 - rng.uniform());
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(drawn));
}

void Context::trace(std::string_view who, const std::string& text) {
  hash_ = stable_hash(text, hash_ ^ static_cast<std::uint64_t>(now()) ^ stable_hash(who));
  if (print_) fmt::print("{:>8} {:<4} {}\n", now(), who, text);
}

void Context::fail(const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = fmt::format("at {} ms: {}", now(), what);
  trace("FAIL", what);
}

}  // namespace tailor::simulation
