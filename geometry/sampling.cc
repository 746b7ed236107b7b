// Deals sequences to subsamples, then walks each subsample's sequences in rounds.
#include "geometry/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace tailor::geometry {
namespace {

void shuffle(std::span<std::uint32_t> values, Rng& rng) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[static_cast<std::size_t>(rng.below(i))]);
  }
}

// The usable positions by sequence: those of sequence c are positions[begin[c]] to
// positions[begin[c + 1]]. One list each, since there may be as many sequences as positions.
struct Sequences {
  std::vector<std::uint32_t> positions;
  std::vector<std::uint32_t> begin;
  std::vector<std::uint32_t> order;  // the longest first, equal ones in a seeded order

  std::size_t size(std::uint32_t c) const { return begin[c + 1] - begin[c]; }
};

Sequences sequences_of(std::span<const std::uint32_t> usable,
                       std::span<const std::int64_t> sequence_of, std::uint64_t seed) {
  Sequences out;
  out.positions.assign(usable.begin(), usable.end());
  const auto id = [&](std::size_t i) {
    return sequence_of.empty() ? static_cast<std::int64_t>(out.positions[i])
                               : sequence_of[out.positions[i]];
  };
  if (!sequence_of.empty()) {
    std::sort(out.positions.begin(), out.positions.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(sequence_of[a], a) < std::pair(sequence_of[b], b);
    });
  }
  for (std::size_t i = 0; i < out.positions.size(); ++i) {
    if (i == 0 || id(i) != id(i - 1)) out.begin.push_back(static_cast<std::uint32_t>(i));
  }
  out.order.resize(out.begin.size());
  out.begin.push_back(static_cast<std::uint32_t>(out.positions.size()));
  std::iota(out.order.begin(), out.order.end(), 0u);
  Rng among = Rng::split(seed, "work profile sequences");
  shuffle(std::span(out.order), among);
  std::stable_sort(out.order.begin(), out.order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return out.size(a) > out.size(b); });
  Rng within = Rng::split(seed, "work profile positions");
  for (std::size_t c = 0; c + 1 < out.begin.size(); ++c) {
    shuffle(std::span(out.positions).subspan(out.begin[c], out.begin[c + 1] - out.begin[c]),
            within);
  }
  return out;
}

// Sequences by subsample, or nothing when one would have fewer than `tokens` positions.
std::optional<std::vector<std::vector<std::uint32_t>>> deal(const Sequences& sequences,
                                                            std::size_t count, std::size_t tokens) {
  using Load = std::pair<std::size_t, std::size_t>;  // positions, subsample
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t r = 0; r < count; ++r) least.emplace(0, r);
  std::vector<std::vector<std::uint32_t>> dealt(count);
  for (const std::uint32_t c : sequences.order) {
    const auto [load, r] = least.top();
    least.pop();
    dealt[r].push_back(c);
    least.emplace(load + sequences.size(c), r);
  }
  if (least.top().first < tokens) return std::nullopt;
  return dealt;
}

std::string reason_for_one(const Sample& sample, std::size_t asked) {
  if (sample.sequences < 2) return "all tokens are of one sequence; an error takes two";
  if (asked < 2) return "one subsample was asked for; an error takes two";
  if (sample.positions / sample.tokens < 2) {
    return fmt::format("{} tokens hold one subsample of {}; an error takes two that share none",
                       sample.positions, sample.tokens);
  }
  return fmt::format(
      "{} tokens of {} sequences make one subsample of {} only; an error takes two that share no "
      "sequence",
      sample.positions, sample.sequences, sample.tokens);
}

}  // namespace

Sample draw_sample(std::span<const std::uint32_t> usable, std::span<const std::int64_t> sequence_of,
                   const SamplingOptions& options) {
  TAILOR_CHECK(options.tokens >= 1 && options.subsamples >= 1 &&
               options.linear_tokens >= options.tokens);
  Sample sample;
  sample.positions = usable.size();
  if (usable.empty()) {
    sample.no_error = "there are no tokens";
    return sample;
  }
  sample.tokens = std::min(options.tokens, usable.size());
  const Sequences sequences = sequences_of(usable, sequence_of, options.seed);
  sample.sequences = sequences.order.size();
  std::size_t count =
      std::min({options.subsamples, usable.size() / sample.tokens, sample.sequences});
  auto dealt = deal(sequences, count, sample.tokens);
  while (!dealt) dealt = deal(sequences, --count, sample.tokens);
  for (const std::vector<std::uint32_t>& mine : *dealt) {
    std::vector<std::uint32_t>& positions = sample.subsamples.emplace_back();
    std::size_t available = 0;
    for (const std::uint32_t c : mine) available += sequences.size(c);
    const std::size_t wanted = std::min(options.linear_tokens, available);
    positions.reserve(wanted);
    // The longest are first, so those that have a position left are the first ones.
    std::size_t still = mine.size();
    for (std::size_t round = 0; positions.size() < wanted; ++round) {
      while (sequences.size(mine[still - 1]) <= round) --still;
      for (std::size_t i = 0; i < still && positions.size() < wanted; ++i) {
        positions.push_back(sequences.positions[sequences.begin[mine[i]] + round]);
      }
    }
  }
  if (count < 2) sample.no_error = reason_for_one(sample, options.subsamples);
  return sample;
}

double sampling_memory_bytes(std::size_t positions) {
  // Positions, their sequences, the order and the room to sort it; what is dealt, in lists that
  // grow by doubling; the result.
  return 4.0 * static_cast<double>(positions) * (1 + 1 + 1 + 1 + 3 + 1);
}

std::optional<double> error_of_mean(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  double mean = 0, square = 0, count = 0;  // Welford
  for (const double value : values) {
    const double step = value - mean;
    mean += step / ++count;
    square += step * (value - mean);
  }
  return std::sqrt(square / (count - 1) / count);
}

std::vector<std::uint32_t> dense_numbers(std::span<const std::uint32_t> positions,
                                         std::span<const std::int64_t> sequence_of) {
  std::vector<std::uint32_t> numbers(positions.size());
  std::unordered_map<std::int64_t, std::uint32_t> known;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto next = static_cast<std::uint32_t>(sequence_of.empty() ? i : known.size());
    numbers[i] = sequence_of.empty()
                     ? next
                     : known.try_emplace(sequence_of[positions[i]], next).first->second;
  }
  return numbers;
}

ClusterSums::ClusterSums(std::span<const double> values,
                         std::span<const std::uint32_t> sequence_of) {
  TAILOR_CHECK(values.size() == sequence_of.size());
  struct Sequence {
    double sum = 0, size = 0;
  };
  for (const double value : values) {
    mean_ += (value - mean_) / static_cast<double>(++positions_);
  }
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (sequence_of[i] >= sequences.size()) sequences.resize(sequence_of[i] + std::size_t{1});
    Sequence& of = sequences[sequence_of[i]];
    of.sum += values[i] - mean_;
    ++of.size;
  }
  sequences_ = sequences.size();
  for (const Sequence& of : sequences) {
    squares_ += of.sum * of.sum;
    products_ += of.sum * of.size;
    size_sums_ += of.size * of.size;
  }
}

void ClusterSums::move_to(double mean) {
  const double shift = mean - mean_;
  squares_ += shift * (shift * size_sums_ - 2 * products_);
  products_ -= shift * size_sums_;
  mean_ = mean;
}

void ClusterSums::add(const ClusterSums& other) {
  if (other.positions_ == 0) return;
  const double all = static_cast<double>(positions_ + other.positions_);
  const double mean = mean_ + (other.mean_ - mean_) * (static_cast<double>(other.positions_) / all);
  ClusterSums moved = other;
  moved.move_to(mean);
  move_to(mean);
  positions_ += moved.positions_;
  sequences_ += moved.sequences_;
  squares_ += moved.squares_;
  products_ += moved.products_;
  size_sums_ += moved.size_sums_;
}

std::optional<double> ClusterSums::standard_error() const {
  if (sequences_ < 2) return std::nullopt;
  const double g = static_cast<double>(sequences_), n = static_cast<double>(positions_);
  return std::sqrt(std::max(0.0, g / (g - 1) * squares_)) / n;
}

}  // namespace tailor::geometry
