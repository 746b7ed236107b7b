// Strong ids: a SweepId is not a TrialId. Each is a positive integer given out once and never
// reused (0 means "none"); people see a letter in front of it: s3, t41, w2.
#pragma once

#include <charconv>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tailor {

/// An integer id tagged with its kind. `Tag::kPrefix` is the letter that people see.
template <typename Tag>
struct Id {
  std::uint64_t value = 0;

  constexpr bool valid() const { return value != 0; }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;

  /// "t41".
  std::string to_string() const { return Tag::kPrefix + std::to_string(value); }

  /// Reads "t41" or "41"; nothing else.
  static std::optional<Id> parse(std::string_view text) {
    if (!text.empty() && text.front() == Tag::kPrefix) text.remove_prefix(1);
    Id id;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), id.value);
    if (failure != std::errc() || end != text.data() + text.size() || !id.valid()) {
      return std::nullopt;
    }
    return id;
  }
};

struct SweepTag {
  static constexpr char kPrefix = 's';
};
struct TrialTag {
  static constexpr char kPrefix = 't';
};
struct WorkerTag {
  static constexpr char kPrefix = 'w';
};

using SweepId = Id<SweepTag>;    ///< one submitted search
using TrialId = Id<TrialTag>;    ///< one candidate x one seed
using WorkerId = Id<WorkerTag>;  ///< one worker daemon, known by its name across restarts

/// One try at a trial. `number` counts from 1 within the trial and only grows.
struct AttemptId {
  TrialId trial;
  std::uint32_t number = 0;
  friend constexpr auto operator<=>(const AttemptId&, const AttemptId&) = default;
  /// "t41.2".
  std::string to_string() const { return trial.to_string() + "." + std::to_string(number); }
};

/// Grows with every attempt ever assigned; a message that carries an old one changes nothing.
using FencingToken = std::uint64_t;

}  // namespace tailor

template <typename Tag>
struct std::hash<tailor::Id<Tag>> {
  std::size_t operator()(const tailor::Id<Tag>& id) const noexcept {
    return std::hash<std::uint64_t>()(id.value);
  }
};
template <>
struct std::hash<tailor::AttemptId> {
  std::size_t operator()(const tailor::AttemptId& id) const noexcept {
    return std::hash<std::uint64_t>()(id.trial.value * 0x9E3779B97F4A7C15ull + id.number);
  }
};
