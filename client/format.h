// Small text forms shared by commands.
#pragma once

#include <cstdint>
#include <string>

#include "tailor/v1/sweep.pb.h"

namespace tailor::client {

std::string state_name(v1::SweepState state);  ///< "running"
std::string state_name(v1::TrialState state);
/// "3m 20s" between two Unix times in ms; "" when `from` is 0; up to now when `to` is 0.
std::string duration(std::int64_t from_ms, std::int64_t to_ms);
/// "2026-11-29 15:44" in local time; "" for 0.
std::string local_time(std::int64_t wall_ms);
/// Fixed digits, "-" for a missing value, "nan" as itself.
std::string fixed(double value, int digits);
std::string signed_fixed(double value, int digits);
/// "1.0M", "113.2M", "1.07B".
std::string short_count(double value);
/// Trials of the sweep so far, in any state.
std::uint64_t trials_of(const v1::Sweep& s);
/// "64/20001": points of the space tried and in all; "-" without a space.
std::string search_text(const v1::Sweep& s);
/// "t41" / "s3".
std::string trial_text(std::uint64_t id);
std::string sweep_text(std::uint64_t id);

}  // namespace tailor::client
