// `tailor-trainer diagnose` as a process: a trial's own data, texts, shards and ids; a kill in the
// middle; and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "geometry/npy.h"
#include "tests/worker/trainer/trainer_process.h"

namespace tailor::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class DiagnoseProgramTest : public TrainerTest {
 protected:
  static std::vector<std::string> words(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }
  /// Small enough for seconds.
  static constexpr const char* kSmall =
      "--length 12 --tokens 16 --subsamples 3 --probe-sequences 3 --probe-length 10 --scored 5 "
      "--draws 2 --subsets 3 --permutations 100";

  // Starts `tailor-trainer diagnose ARGUMENTS`; output goes to folder_/out and folder_/err.
  pid_t launch_diagnose(const std::string& arguments) {
    std::vector<std::string> list = words("tailor-trainer diagnose " + arguments);
    const std::string program = std::string(TAILOR_BIN_DIR) + "/tailor-trainer";
    std::vector<char*> pointers;
    for (std::string& word : list) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const std::string out = folder_ + "/out", err = folder_ + "/err";
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 1);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 2);
      ::execv(program.c_str(), pointers.data());
      ::_exit(127);
    }
    return pid;
  }
  int diagnose(const std::string& arguments) { return wait_for(launch_diagnose(arguments)); }
  std::string err() const { return read_file(folder_ + "/err").value_or(""); }
  json result_of(const std::string& out) const {
    return json::parse(read_file(folder_ + "/" + out + "/diagnosis.json").value_or(""), nullptr,
                       false);
  }
  std::string trained() {
    protocol::TrialSpec spec = small_spec();
    spec.architecture.widths = shape::uniform_widths(4, 2, 24);
    spec.train.tokens = 128 * 10;
    const std::string trial = prepare("trial", spec);
    EXPECT_EQ(run(trial), 0);
    return trial;
  }
};

TEST_F(DiagnoseProgramTest, ATrialIsDiagnosedOnItsValidationData) {
  const std::string trial = trained();
  ASSERT_EQ(diagnose("--model " + trial + " --out " + folder_ + "/d --json " + kSmall), 0) << err();
  const json result = result_of("d");
  EXPECT_EQ(result["model"]["layers"], 4);
  EXPECT_EQ(result["data"]["files"][0], "validation.tokens");
  EXPECT_EQ(result["data"]["probe_sequences"], 3);
  EXPECT_EQ(result["work"].size(), 9u);
  EXPECT_EQ(json::parse(read_file(folder_ + "/out").value_or(""), nullptr, false), result);
  EXPECT_TRUE(fs::exists(folder_ + "/d/report.html"));
  EXPECT_TRUE(fs::exists(folder_ + "/d/diagnosis.db"));
  // A checkpoint without an export is the same network: the same numbers.
  fs::remove_all(trial + "/artifacts");
  ASSERT_EQ(diagnose("--model " + trial + " --out " + folder_ + "/e " + kSmall), 0) << err();
  const json again = result_of("e");
  EXPECT_EQ(again["clean_loss"], result["clean_loss"]);
  EXPECT_EQ(again["work"], result["work"]);
  EXPECT_THAT(read_file(folder_ + "/out").value_or(""), HasSubstr("report.html"));
}

TEST_F(DiagnoseProgramTest, KilledItGoesOnAndGivesEqualBytes) {
  const std::string trial = trained();
  const std::string options = "--model " + trial + " " + kSmall;
  ASSERT_EQ(diagnose(options + " --out " + folder_ + "/whole"), 0) << err();
  // Kill after each file that appears.
  const std::string broken = folder_ + "/broken";
  for (const char* piece : {"settings", "probes_0000", "clouds", "layer_001"}) {
    const pid_t pid = launch_diagnose(options + " --out " + broken);
    wait_until("no piece " + std::string(piece),
               [&] { return fs::exists(broken + "/pieces/" + piece + ".json"); });
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  ASSERT_EQ(diagnose(options + " --out " + broken), 0) << err();
  for (const char* name : {"diagnosis.json", "diagnosis.db", "report.html"}) {
    EXPECT_EQ(read_file(broken + "/" + name).value_or(""),
              read_file(folder_ + "/whole/" + name).value_or("-"))
        << name;
  }
}

TEST_F(DiagnoseProgramTest, ReadsIdsAndAllPerturbations) {
  const std::string trial = trained();
  geometry::NpyArray ids;
  ids.type = geometry::NpyType::kI8;
  ids.shape = {40, 13};
  Rng rng(3);
  for (int i = 0; i < 40 * 13; ++i) {
    const auto id = static_cast<std::int64_t>(rng.below(64));
    ids.bytes.append(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  ASSERT_TRUE(geometry::write_npy(folder_ + "/ids.npy", ids).is_ok());
  ASSERT_EQ(diagnose("--model " + trial + " --data " + folder_ + "/ids.npy --out " + folder_ +
                     "/d --perturbation relative,absolute,attenuation,ablation " + kSmall),
            0)
      << err();
  const json result = result_of("d");
  EXPECT_EQ(result["data"]["windows"], 40);
  EXPECT_EQ(result["sensitivity"].size(), 4u);
  EXPECT_EQ(result["correlations"].size(), 44u);
}

TEST_F(DiagnoseProgramTest, RefusesWhatItCannotDo) {
  const std::string trial = trained();
  EXPECT_EQ(diagnose("--model " + folder_ + "/none --data x.txt"), 2);
  EXPECT_THAT(err(), HasSubstr("no model there"));
  EXPECT_EQ(diagnose("--model " + trial + " --perturbation loud"), 2);
  EXPECT_THAT(err(), HasSubstr("attenuation"));
  EXPECT_EQ(diagnose("--model " + trial + " --length 4000"), 2);
  EXPECT_THAT(err(), HasSubstr("whole sequences"));
  EXPECT_EQ(diagnose("--model " + trial + " --scored 64"), 2);
  EXPECT_EQ(diagnose("--model " + trial + " --memory 0.5 --out " + folder_ + "/m " + kSmall), 4);
  EXPECT_THAT(err(), HasSubstr("--memory"));
  write_shard("large.tokens", 1000, 4, 100);
  EXPECT_EQ(diagnose("--model " + trial + " --data " + folder_ + "/large.tokens " + kSmall), 2);
  EXPECT_THAT(err(), HasSubstr("the model has tokens 0 to 63"));
  std::ofstream(folder_ + "/text.txt") << std::string(4000, 'a');
  EXPECT_EQ(diagnose("--model " + trial + " --data " + folder_ + "/text.txt " + kSmall), 2);
  EXPECT_THAT(err(), HasSubstr("--tokenizer"));
}

}  // namespace
}  // namespace tailor::trainer
