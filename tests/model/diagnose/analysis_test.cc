// The whole analysis on measurements that are known: right values, every error there is, and
// what is absent with its reason; the tables and the page made of it.
#include "model/diagnose/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "geometry/profile_shaping.h"
#include "model/diagnose/correlation.h"
#include "model/diagnose/report.h"

namespace tailor::diagnose {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

constexpr int kLayers = 8;
constexpr std::size_t kSubsamples = 4;

std::vector<LayerMeasurement> measurements() {
  std::vector<LayerMeasurement> all;
  Rng rng(4);
  for (int l = 0; l < kLayers; ++l) {
    LayerMeasurement m;
    m.layer = l;
    for (const char* geometry : {"raw", "spherical", "hyperbolic"}) {
      for (const char* statistic : {"shift", "gromov", "topology"}) {
        auto& values = m.work[{geometry, statistic}];
        for (std::size_t r = 0; r < kSubsamples; ++r) {
          values.push_back(1.0 / (1 + l) + 0.02 * rng.uniform());
        }
        const double exponent = std::string(geometry) == "raw" ? 1 : 0;
        for (const double s : kScales) {
          m.by_scale[{geometry, statistic}].push_back(values[0] * std::pow(s, exponent));
        }
      }
    }
    for (std::size_t r = 0; r < kSubsamples; ++r) {
      m.norm_x.push_back(10 + l + 0.1 * rng.uniform());
      m.norm_f.push_back(1.0 / (1 + l) + 0.01 * rng.uniform());
    }
    m.dimension["two_nn"] = {9.0 + l % 3, {9.0 + l % 3, 9.1 + l % 3, 8.9 + l % 3, 9.0 + l % 3}, ""};
    m.dimension["two_nn_fit"] = m.dimension["two_nn"];
    m.dimension["levina_bickel"] = m.dimension["two_nn"];
    m.dimension_points = 1000;
    all.push_back(m);
  }
  return all;
}

Sampling sampling() { return *sample_rows(kSubsamples * 8 * 4, 4, 32, kSubsamples, {}); }

ProbeResults probes(const ProbeOptions& options) {
  ProbeResults results;
  results.scored_tokens = 5;
  results.clean = {10, 11, 12};
  results.probes = plan_probes(kLayers, options);
  Rng rng(9);
  for (const Probe& probe : results.probes) {
    double change = 0;
    for (const int l : probe.layers) change += probe.eps * probe.eps * (2.0 / (1 + l));
    std::vector<double>& losses = results.losses.emplace_back();
    for (const double clean : results.clean) {
      losses.push_back(clean + 5 * change * (1 + 0.02 * rng.uniform()));
    }
  }
  return results;
}

struct Everything {
  std::vector<LayerMeasurement> layers = measurements();
  Sampling rows = sampling();
  ProbeOptions options;
  AnalysisOptions analysis{1, 500};
  ordered_json out() const {
    const auto sensitivity = Sensitivity::create(probes(options), kLayers, options);
    return analyse(layers, rows, *sensitivity, analysis);
  }
};

// Every {"value": ..., "standard_error": ...} of a document.
void visit_estimates(const ordered_json& node,
                     const std::function<void(const ordered_json&)>& visit) {
  if (node.is_object() && node.contains("value") && node.contains("standard_error")) visit(node);
  if (node.is_structured()) {
    for (const ordered_json& child : node) visit_estimates(child, visit);
  }
}

TEST(Analyse, GivesNineProfilesWithValuesErrorsAndFrontLoad) {
  const Everything all;
  const ordered_json out = all.out();
  ASSERT_EQ(out["work"].size(), 9u);
  ASSERT_EQ(out["correlations"].size(), 11u);
  for (const ordered_json& work : out["work"]) {
    const WorkKey key{work["geometry"].get<std::string>(), work["statistic"].get<std::string>()};
    std::vector<double> profile;
    for (int l = 0; l < kLayers; ++l) {
      const auto& values = all.layers[static_cast<std::size_t>(l)].work.at(key);
      double mean = 0, squares = 0;
      for (const double value : values) mean += value / kSubsamples;
      for (const double value : values) squares += (value - mean) * (value - mean);
      const ordered_json& entry = work["values"][static_cast<std::size_t>(l)];
      EXPECT_NEAR(entry["value"].get<double>(), mean, 1e-12);
      EXPECT_NEAR(entry["standard_error"].get<double>(), std::sqrt(squares / 3 / kSubsamples),
                  1e-12);
      profile.push_back(mean);
    }
    EXPECT_NEAR(work["front_load"]["value"].get<double>(),
                geometry::front_load_index(profile).value(), 1e-12);
    EXPECT_GT(work["front_load"]["standard_error"].get<double>(), 0);
    EXPECT_NEAR(work["scale_exponent"]["median"].get<double>(), key.first == "raw" ? 1 : 0, 1e-12);
  }
}

TEST(Analyse, CorrelatesEveryProfileWithTheSensitivity) {
  const ordered_json out = Everything().out();
  for (const ordered_json& row : out["correlations"]) {
    if (row["profile"] == "dimension") continue;
    // Both fall as 1 / (1 + l).
    EXPECT_NEAR(row["spearman"]["value"].get<double>(), 1, 1e-12);
    EXPECT_GT(row["pearson_log"]["value"].get<double>(), 0.99);
    EXPECT_DOUBLE_EQ(row["spearman"]["p_shift"].get<double>(), 1.0 / kLayers);
    EXPECT_GE(row["pearson_log"]["standard_error"].get<double>(), 0);
    EXPECT_TRUE(row["pearson_log"]["partial"]["value"].is_number());
    EXPECT_THAT(row["spearman"]["partial"]["reason"].get<std::string>(),
                HasSubstr("follows depth"));
  }
  EXPECT_NEAR(out["naive_limit"].get<double>(), 0.7067, 5e-4);  // the usual table for n = 8
}

TEST(Analyse, ErrorsOfCorrelationsHoldAllThreeSamples) {
  Everything all;
  // A profile without noise: what is left is the error by sequences and draws.
  for (LayerMeasurement& m : all.layers) {
    for (auto& [key, values] : m.work) {
      values.assign(kSubsamples, 1.0 / (1 + m.layer) + (m.layer % 2) * 0.3);
    }
  }
  const double quiet = all.out()["correlations"][0]["pearson_log"]["standard_error"];
  EXPECT_GT(quiet, 0);
  Rng rng(2);
  for (LayerMeasurement& m : all.layers) {
    for (auto& [key, values] : m.work) {
      for (double& value : values) value += 0.1 * rng.uniform();
    }
  }
  const double noisy = all.out()["correlations"][0]["pearson_log"]["standard_error"];
  EXPECT_GT(noisy, 2 * quiet);
}

TEST(Analyse, EveryNumberHasAnErrorOrAReason) {
  Everything one;
  one.rows.subsamples.resize(1);
  one.rows.reason = "one subsample only";
  for (LayerMeasurement& m : one.layers) {
    for (auto& [key, values] : m.work) values.resize(1);
    m.norm_x.resize(1);
    m.norm_f.resize(1);
    for (auto& [name, value] : m.dimension) {
      value.without_subsample.clear();
      value.reason = "one subsample only";
    }
  }
  int absent = 0;
  for (const ordered_json& out : {Everything().out(), one.out()}) {
    visit_estimates(out, [&](const ordered_json& estimate) {
      if (estimate["value"].is_null() || estimate["standard_error"].is_null()) {
        ++absent;
        EXPECT_FALSE(estimate.value("reason", "").empty()) << estimate.dump();
      }
    });
  }
  EXPECT_GT(absent, 90);  // without subsamples there is no error of any profile
  EXPECT_THAT(one.out()["work"][0]["values"][0]["reason"].get<std::string>(),
              HasSubstr("one subsample"));
}

TEST(Analyse, ALayerThatCannotBeMeasuredTakesOnlyItsProfilesAway) {
  Everything all;
  all.layers[3].work.clear();
  all.layers[3].by_scale.clear();
  all.layers[3].work_reason = "all tokens are equal";
  const ordered_json out = all.out();
  EXPECT_TRUE(out["work"][0]["values"][3]["value"].is_null());
  EXPECT_THAT(out["work"][0]["values"][3]["reason"].get<std::string>(), HasSubstr("equal"));
  EXPECT_TRUE(out["work"][0]["values"][2]["value"].is_number());
  EXPECT_TRUE(out["work"][0]["front_load"]["value"].is_null());
  EXPECT_TRUE(out["correlations"][0]["spearman"]["value"].is_null());
  EXPECT_TRUE(out["correlations"][9]["spearman"]["value"].is_number());  // dimension
  EXPECT_TRUE(out["sensitivity"][0]["layers"][3]["lambda"]["value"].is_number());
}

TEST(Tables, HoldWhatTheDocumentHolds) {
  const Everything all;
  ordered_json out = all.out();
  out["settings"] = {{"seed", 1}};
  const auto tables = tables_of(out, all.layers, probes(all.options));
  std::map<std::string, std::size_t> rows;
  for (const storage::Table& table : tables) {
    rows[table.name] = table.rows.size();
    for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.name;
  }
  EXPECT_EQ(rows["layers"], 8u);
  EXPECT_EQ(rows["work"], 72u);
  EXPECT_EQ(rows["work_subsamples"], 72u * kSubsamples);
  EXPECT_EQ(rows["sensitivity"], 8u);
  EXPECT_EQ(rows["loss_changes"], 24u);
  EXPECT_EQ(rows["correlations"], 22u);
  EXPECT_EQ(rows["probes"], 3 + 3 * plan_probes(kLayers, all.options).size());
}

TEST(Report, HoldsEverythingAndAsksTheNetworkForNothing) {
  ordered_json out = Everything().out();
  out["model"] = {{"name", "</script><script>alert(1)</script> <!-- "}};
  const std::string html = report_html(out);
  EXPECT_THAT(html, HasSubstr("\"format\":\"tailor-diagnosis\""));
  EXPECT_THAT(html, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(html, Not(HasSubstr("/*DIAGNOSIS*/")));
  EXPECT_THAT(html, Not(HasSubstr("/*PLOTLY*/")));
  if (!plotly_javascript().empty()) {
    EXPECT_NE(html.find(plotly_javascript()), html.npos);
    EXPECT_EQ(plotly_javascript().find("</script"), std::string_view::npos);
  }
  // Of our own page nothing is loaded from anywhere.
  const std::string page(report_page());
  for (const char* loads :
       {"src=", "href=", "url(", "@import", "fetch(", "XMLHttp", "http:", "https:", "import("}) {
    EXPECT_EQ(page.find(loads), page.npos) << loads;
  }
}

}  // namespace
}  // namespace tailor::diagnose
