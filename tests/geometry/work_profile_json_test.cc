// A profile written and read back is the same one; what is no profile is refused by key.
#include "geometry/work_profile_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace tailor::geometry {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

WorkProfile small_profile() {
  WorkProfile profile;
  profile.tokens = 3;
  profile.linear_tokens = 4;
  profile.subsamples = 2;
  profile.rho = 0.1 + 0.2;
  profile.seed = 0xFFFFFFFFFFFFFFFFull;
  profile.dropped = 5;
  profile.positions = {{0, 4294967295u, 7, 9}, {1, 2, 3, 4}};
  profile.subsamples_asked = 8;
  profile.usable = 4'294'967'296;
  profile.sequences = 77;
  profile.sequences_given = true;
  profile.no_error = "a reason";
  profile.subsample_tokens = {4, 5};
  profile.entries = {
      {0, -1, Geometry::kRaw, "shift", 1.0 / 3, 0x1p-1074, "", {1.0 / 7, 0x1p-1074}},
      {3, 2, Geometry::kHyperbolic, "topology", 0x1.fffffffffffffp+1023, {}, "why", {0, 1}},
      {4,
       -1,
       Geometry::kRaw,
       "gromov",
       0.5,
       {},
       "why",
       {0, 1},
       WorkEnergies{1.0 / 3, 2.0 / 3, 0, 0x1p-1074, 0.1, 2}}};
  return profile;
}

TEST(WorkProfileJson, IsReadBackToTheLastDigit) {
  const WorkProfile written = small_profile();
  const auto read = work_profile_from_json(work_profile_json(written));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->tokens, written.tokens);
  EXPECT_EQ(read->linear_tokens, written.linear_tokens);
  EXPECT_EQ(read->subsamples, written.subsamples);
  EXPECT_EQ(read->rho, written.rho);
  EXPECT_EQ(read->seed, written.seed);
  EXPECT_EQ(read->dropped, written.dropped);
  EXPECT_EQ(read->positions, written.positions);
  EXPECT_EQ(read->subsamples_asked, written.subsamples_asked);
  EXPECT_EQ(read->usable, written.usable);
  EXPECT_EQ(read->sequences, written.sequences);
  EXPECT_EQ(read->sequences_given, written.sequences_given);
  EXPECT_EQ(read->no_error, written.no_error);
  EXPECT_EQ(read->subsample_tokens, written.subsample_tokens);
  ASSERT_EQ(read->entries.size(), written.entries.size());
  for (std::size_t i = 0; i < written.entries.size(); ++i) {
    EXPECT_EQ(read->entries[i].layer, written.entries[i].layer);
    EXPECT_EQ(read->entries[i].sub_block, written.entries[i].sub_block);
    EXPECT_EQ(read->entries[i].geometry, written.entries[i].geometry);
    EXPECT_EQ(read->entries[i].statistic, written.entries[i].statistic);
    EXPECT_EQ(read->entries[i].value, written.entries[i].value);
    EXPECT_EQ(read->entries[i].standard_error, written.entries[i].standard_error);
    EXPECT_EQ(read->entries[i].no_error, written.entries[i].no_error);
    EXPECT_EQ(read->entries[i].subsample_values, written.entries[i].subsample_values);
    EXPECT_EQ(read->entries[i].energies, written.entries[i].energies);
  }
}

TEST(WorkProfileJson, EnergiesAreNamedWithTheRatioOfTheIdentity) {
  const auto json = ordered_json::parse(work_profile_json(small_profile()));
  const auto& of = json.at("entries").at(2).at("energies");
  EXPECT_EQ(of.at("energy"), 1.0 / 3);
  EXPECT_EQ(of.at("identity"), 2.0 / 3);
  EXPECT_EQ(of.at("identity_ratio"), 2.0);
  EXPECT_EQ(of.at("lower_bounds").at("third"), 0.1);
  EXPECT_EQ(of.at("certified"), 2);
  EXPECT_FALSE(json.at("entries").at(0).contains("energies"));
}

TEST(WorkProfileJson, ErrorsOfEarlierVersionsAreNotBelieved) {
  ordered_json old = ordered_json::parse(work_profile_json(small_profile()));
  for (const char* key : {"subsamples_asked", "usable", "sequences", "sequences_given",
                          "subsample_tokens", "no_error"}) {
    old.erase(key);
  }
  for (ordered_json& entry : old["entries"]) {
    entry.erase("subsample_values");
    entry.erase("no_error");
    entry["standard_error"] = 0.25;
  }
  for (const int version : {1, 2}) {
    old["version"] = version;
    const auto read = work_profile_from_json(old.dump());
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->entries[0].value, 1.0 / 3);
    EXPECT_FALSE(read->entries[0].standard_error);
    EXPECT_EQ(read->entries[0].no_error, kEarlierErrors);
    EXPECT_EQ(read->no_error, kEarlierErrors);
    EXPECT_EQ(read->usable, 0u);
  }
}

TEST(WorkProfileJson, KeysOfOtherProgramsArePassedOver) {
  ordered_json json = ordered_json::parse(work_profile_json(small_profile()));
  json["step"] = 12;
  EXPECT_TRUE(work_profile_from_json(json.dump()).has_value());
}

TEST(WorkProfileJson, BytesBehindTheProfileAreRefused) {
  const std::string good = work_profile_json(small_profile());
  ASSERT_TRUE(work_profile_from_json(good + "\n").has_value());
  EXPECT_FALSE(work_profile_from_json(good + std::string("\0", 1)).has_value());
  EXPECT_FALSE(work_profile_from_json(good + std::string("\0garbage", 8)).has_value());
  EXPECT_FALSE(work_profile_from_json(good + good).has_value());
  EXPECT_FALSE(work_profile_from_json(std::string(1'000'000, '[')).has_value());
}

TEST(WorkProfileJson, WhatIsNoProfileIsRefusedByKey) {
  const ordered_json good = ordered_json::parse(work_profile_json(small_profile()));
  const auto message = [](const ordered_json& json) {
    const auto read = work_profile_from_json(json.dump());
    return read.has_value() ? "accepted" : read.error().message();
  };
  for (const auto& [key, value] : good.items()) {
    ordered_json lacking = good, wrong = good;
    lacking.erase(key);
    wrong[key] = ordered_json::object();
    EXPECT_THAT(message(lacking), HasSubstr("\"" + key + "\" is missing"));
    EXPECT_THAT(message(wrong), HasSubstr("\"" + key + "\""));
  }
  for (const auto& [key, value] : good["entries"][0].items()) {
    ordered_json lacking = good;
    lacking["entries"][0].erase(key);
    EXPECT_THAT(message(lacking), HasSubstr("entry 0: \"" + key + "\" is missing"));
  }
  const auto with = [&good](const char* key, const ordered_json& value) {
    ordered_json changed = good;
    changed[key] = value;
    return changed;
  };
  EXPECT_THAT(message(with("format", "other")), HasSubstr("\"other\""));
  EXPECT_THAT(message(with("version", 4)), HasSubstr("newer Tailor"));
  EXPECT_THAT(message(with("tokens", -1)), HasSubstr("\"tokens\" is -1"));
  EXPECT_THAT(message(with("rho", 1)), HasSubstr("\"rho\""));
  EXPECT_THAT(message(with("usable", 0)), HasSubstr("\"usable\" is 0"));
  EXPECT_THAT(message(with("subsample_tokens", {4})), HasSubstr("not one number a subsample"));
  EXPECT_THAT(message(with("subsamples", 3)), HasSubstr("subsample"));
  EXPECT_THAT(message(with("subsample_positions", {{1}, {-1}})), HasSubstr("list 1"));
  ordered_json entry = good;
  entry["entries"][1]["geometry"] = "flat";
  EXPECT_THAT(message(entry), HasSubstr("entry 1: unknown geometry"));
  entry = good;
  entry["entries"][0]["standard_error"] = -1;
  EXPECT_THAT(message(entry), HasSubstr("entry 0: a standard error is negative"));
  entry = good;
  entry["entries"][0]["value"] = nullptr;
  EXPECT_THAT(message(entry), HasSubstr("entry 0: \"value\""));
}

TEST(WorkProfileJson, ACutTextIsRefusedAtEveryLength) {
  const std::string whole = work_profile_json(small_profile());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(work_profile_from_json(std::string_view(whole).substr(0, length)).has_value());
  }
}

}  // namespace
}  // namespace tailor::geometry
