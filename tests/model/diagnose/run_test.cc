// Whole diagnoses of the small published checkpoints: every family, every file, and equal bytes
// after any kill.
#include "model/diagnose/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/rng.h"
#include "geometry/npy.h"
#include "model/diagnose/streamed_network.h"
#include "model/pretrained/config.h"
#include "tests/model/pretrained/reference_models.h"

namespace tailor::diagnose {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

Settings small_settings() {
  Settings settings;
  settings.tokens = 24;
  settings.subsamples = 3;
  settings.length = 12;
  settings.probe_sequences = 3;
  settings.probe_length = 10;
  settings.scored = 5;
  settings.permutations = 100;
  settings.probes.draws = 2;
  settings.probes.eps = {0.1, 0.2};
  settings.probes.subset_sizes = {2, 0};
  settings.probes.subsets = 3;
  return settings;
}

Sequences random_sequences(const Settings& settings, std::int64_t vocabulary) {
  Rng rng(5);
  Sequences out;
  const auto make = [&](std::int64_t length) {
    std::vector<std::int64_t> ids;
    for (std::int64_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(vocabulary))));
    }
    return ids;
  };
  for (std::size_t s = 0; s < settings.cloud_sequences(); ++s) {
    out.clouds.push_back(make(settings.length));
  }
  for (std::int64_t s = 0; s < settings.probe_sequences; ++s) {
    out.probes.push_back(make(settings.probe_length));
  }
  return out;
}

struct Model {
  explicit Model(const std::string& name, const std::string& folder, bool tight = false) {
    const std::string path = test::checkpoint_folder(name, "config.json", folder);
    form = *pretrained::read_config(path);
    source = *pretrained::open_pretrained(path);
    StreamOptions options;
    const WeightBytes bytes = weight_bytes(form, false);
    options.weight_bytes = tight ? bytes.ends + bytes.layer : bytes.all;
    network = *make_streamed_network(form, *source, options);
  }
  net::DecoderForm form;
  std::unique_ptr<pretrained::TensorSource> source;
  std::unique_ptr<ProbeNetwork> network;
};

const ordered_json kAbout = {{"model", {{"name", "tiny"}}}, {"data", ordered_json::object()}};

std::map<std::string, std::string> results_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {"diagnosis.json", "diagnosis.db", "report.html"}) {
    files[name] = read_file(folder + "/" + name).value_or("");
    EXPECT_FALSE(files[name].empty()) << name;
  }
  return files;
}

class DiagnosedFamilies : public testing::TestWithParam<std::string> {};

TEST_P(DiagnosedFamilies, HaveNineProfilesAndAllElse) {
  const test::TemporaryFolder temporary;
  Model model(GetParam(), temporary.path());
  const Settings settings = small_settings();
  const auto out = diagnose(*model.network, random_sequences(settings, model.form.vocab_size),
                            settings, kAbout, temporary.path() + "/out");
  ASSERT_TRUE(out.has_value()) << out.error().message();
  EXPECT_EQ((*out)["work"].size(), 9u);
  EXPECT_EQ((*out)["sample"]["subsamples"], 3);
  EXPECT_EQ((*out)["layers"].size(), static_cast<std::size_t>(model.form.depth()));
  for (const ordered_json& work : (*out)["work"]) {
    for (const ordered_json& value : work["values"]) {
      EXPECT_TRUE(value["value"].is_number()) << work["geometry"] << work["statistic"];
      EXPECT_TRUE(value["standard_error"].is_number());
    }
    if (work["statistic"] == "topology") continue;  // may have no bar in 24 tokens
    EXPECT_NEAR(work["scale_exponent"]["median"].get<double>(), work["geometry"] == "raw" ? 1 : 0,
                1e-9);
  }
  for (const ordered_json& layer : (*out)["sensitivity"][0]["layers"]) {
    EXPECT_TRUE(layer["lambda"]["value"].is_number());
    EXPECT_TRUE(layer["lambda"]["standard_error"].is_number());
  }
  const auto files = results_of(temporary.path() + "/out");
  EXPECT_EQ(files.at("diagnosis.db").substr(0, 15), "SQLite format 3");
  EXPECT_THAT(files.at("report.html"), HasSubstr("tailor-diagnosis"));
  EXPECT_FALSE(fs::exists(temporary.path() + "/out/pieces/clouds"));
}

INSTANTIATE_TEST_SUITE_P(Families, DiagnosedFamilies,
                         testing::Values("llama_untied", "llama_tied", "olmo2", "mistral", "gemma2",
                                         "gemma3"));

TEST(Diagnose, GoesOnAfterAKillWithEqualBytes) {
  const test::TemporaryFolder temporary;
  const Settings settings = small_settings();
  Model model("gemma3", temporary.path());
  const Sequences sequences = random_sequences(settings, model.form.vocab_size);
  const std::string whole = temporary.path() + "/whole";
  ASSERT_TRUE(diagnose(*model.network, sequences, settings, kAbout, whole).has_value());
  const auto expected = results_of(whole);
  std::vector<std::string> pieces;
  for (const auto& entry : fs::directory_iterator(whole + "/pieces")) {
    pieces.push_back(entry.path().filename().string());
  }
  ASSERT_GE(pieces.size(), 7u);  // settings, a pass of probes, clouds, four layers
  // A kill leaves some pieces and no results: each piece missing, in turn; and all of one kind.
  pieces.push_back("layer_");
  pieces.push_back("probes_");
  for (const std::string& lost : pieces) {
    const std::string folder = temporary.path() + "/again";
    fs::remove_all(folder);
    fs::copy(whole, folder, fs::copy_options::recursive);
    for (const char* name : {"diagnosis.json", "diagnosis.db", "report.html"}) {
      fs::remove(folder + "/" + name);
    }
    for (const auto& entry : fs::directory_iterator(folder + "/pieces")) {
      if (entry.path().filename().string().starts_with(lost)) fs::remove(entry.path());
    }
    // Another process, with less room.
    Model other("gemma3", temporary.path(), /*tight=*/true);
    Settings threads = settings;
    threads.threads = 2;
    ASSERT_TRUE(diagnose(*other.network, sequences, threads, kAbout, folder).has_value());
    EXPECT_EQ(results_of(folder), expected) << "without " << lost;
  }
}

TEST(Diagnose, FinishedPiecesAreNotMeasuredAgain) {
  const test::TemporaryFolder temporary;
  const Settings settings = small_settings();
  Model model("llama_tied", temporary.path());
  const Sequences sequences = random_sequences(settings, model.form.vocab_size);
  const std::string folder = temporary.path() + "/out";
  const auto steps = [&](const Settings& with) {
    int shown = 0;
    const auto out = diagnose(*model.network, sequences, with, kAbout, folder,
                              [&](double done, double total, std::string_view what) {
                                EXPECT_GE(done, 0);
                                EXPECT_LE(done, total * 1.0001);
                                shown += what == "analysis" || what == "done" ? 0 : 1;
                              });
    EXPECT_TRUE(out.has_value());
    return shown;
  };
  EXPECT_GT(steps(settings), 10);
  EXPECT_EQ(steps(settings), 0);
  Settings other = settings;
  other.seed = 1;
  EXPECT_GT(steps(other), 10);
}

TEST(Diagnose, KeepsTheCloudsWhenAsked) {
  const test::TemporaryFolder temporary;
  Settings settings = small_settings();
  settings.keep_clouds = true;
  Model model("llama_tied", temporary.path());
  const std::string folder = temporary.path() + "/out";
  const Sequences sequences = random_sequences(settings, model.form.vocab_size);
  const auto out = diagnose(*model.network, sequences, settings, kAbout, folder);
  ASSERT_TRUE(out.has_value());
  const auto before = geometry::read_npy(folder + "/clouds/layer_001_before.npy");
  const auto after = geometry::read_npy(folder + "/clouds/layer_001_after.npy");
  ASSERT_TRUE(before.has_value() && after.has_value());
  const json positions = json::parse(*read_file(folder + "/clouds/positions.json"));
  // Raw shift of the first layer, from what was kept.
  const auto x = before->to_doubles(), y = after->to_doubles();
  const std::size_t d = before->shape[1];
  double sum = 0;
  int rows = 0;
  for (const json& subsample : positions["subsamples"]) {
    for (const json& row : subsample) {
      double squares = 0;
      for (std::size_t i = 0; i < d; ++i) {
        const std::size_t at = row.get<std::size_t>() * d + i;
        squares += (x[at] - y[at]) * (x[at] - y[at]);
      }
      sum += std::sqrt(squares);
      ++rows;
    }
  }
  EXPECT_EQ(rows, 72);
  for (const ordered_json& work : (*out)["work"]) {
    if (work["geometry"] != "raw" || work["statistic"] != "shift") continue;
    EXPECT_NEAR(work["values"][1]["value"].get<double>(), sum / rows, 1e-9 * sum);
  }
}

TEST(Diagnose, TooLittleDataIsSaid) {
  const test::TemporaryFolder temporary;
  const Settings settings = small_settings();
  Model model("llama_tied", temporary.path());
  Sequences sequences = random_sequences(settings, model.form.vocab_size);
  sequences.clouds.resize(3);
  const auto out = diagnose(*model.network, sequences, settings, kAbout, temporary.path() + "/o");
  ASSERT_TRUE(out.has_value()) << out.error().message();
  EXPECT_EQ((*out)["sample"]["subsamples"], 1);
  EXPECT_TRUE((*out)["work"][0]["values"][0]["value"].is_number());
  EXPECT_TRUE((*out)["work"][0]["values"][0]["standard_error"].is_null());
  EXPECT_THAT((*out)["work"][0]["values"][0]["reason"].get<std::string>(),
              HasSubstr("no standard error"));
  sequences.clouds.clear();
  EXPECT_EQ(
      diagnose(*model.network, sequences, settings, kAbout, temporary.path() + "/p").error().code(),
      Code::kFailedPrecondition);
}

TEST(Settings, WrongOnesAreNamed) {
  const auto message = [](const std::function<void(Settings&)>& change) {
    Settings settings;
    change(settings);
    return settings.validate().message();
  };
  EXPECT_EQ(message([](Settings&) {}), "");
  EXPECT_THAT(message([](Settings& s) { s.probe_length = 1000; }), HasSubstr("1000"));
  EXPECT_THAT(message([](Settings& s) { s.scored = 64; }), HasSubstr("1 to 63"));
  EXPECT_THAT(message([](Settings& s) { s.tokens_per_sequence = 128; }), HasSubstr("1 to 127"));
  EXPECT_THAT(message([](Settings& s) { s.rho = 1; }), HasSubstr("rho"));
  EXPECT_EQ(Settings().cloud_sequences(), 512u);
}

}  // namespace
}  // namespace tailor::diagnose
