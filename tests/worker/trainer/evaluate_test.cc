// `tailor-trainer evaluate` as a process: a trial's weights, records, comparisons, and wrong usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "model/data/manifest.h"
#include "model/data/token_shard.h"
#include "model/tokenizers/tokenizer.h"
#include "protocol/convert.h"
#include "tests/support/temporary_folder.h"

namespace tailor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

struct Output {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// A folder with a trial of a byte model, trained for a few steps once for all tests.
class EvaluateProgramTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    temporary_ = std::make_unique<test::TemporaryFolder>();
    folder_ = temporary_->path();
    const auto tokenizer = tokenizers::make_byte_tokenizer();
    write_shard("train.tokens", *tokenizer, 4000);
    write_shard("validation.tokens", *tokenizer, 300);
    train("trial", "train.tokens", "validation.tokens", tokenizer->vocab_size());
  }
  /// A trial in folder_/NAME on shards of folder_.
  static void train(const std::string& name, const std::string& train_shards,
                    const std::string& validation_shards, std::uint32_t vocab_size) {
    protocol::TrialSpec spec;
    spec.trial = TrialId{1};
    spec.attempt = 1;
    spec.architecture.d_model = 16;
    spec.architecture.heads = 2;
    spec.architecture.kv_heads = 1;
    spec.architecture.head_dim = 8;
    spec.architecture.vocab_size = vocab_size;
    spec.architecture.ffn_kind = shape::FfnKind::kHourglass;
    spec.architecture.widths = shape::uniform_widths(2, 2, 16);
    spec.data.train = folder_ + "/" + train_shards;
    spec.data.validation = folder_ + "/" + validation_shards;
    spec.data.sequence_length = 32;
    spec.train.batch_tokens = 128;
    spec.train.tokens = 128 * 5;
    fs::create_directories(folder_ + "/" + name);
    std::ofstream(folder_ + "/" + name + "/spec.json") << protocol::to_json(spec);
    const Output output = trainer("run " + folder_ + "/" + name);
    EXPECT_EQ(output.exit_code, 0) << output.err;
  }
  static json json_of(const std::string& file) {
    return json::parse(read_file(folder_ + "/" + file).value_or(""), nullptr, false);
  }
  static void TearDownTestSuite() { temporary_.reset(); }

  static void write_shard(const std::string& name, tokenizers::Tokenizer& tokenizer, int words,
                          const std::string& sha256 = "") {
    Rng rng(static_cast<std::uint64_t>(words));
    std::string text;
    for (int i = 0; i < words; ++i) text += rng.below(2) == 0 ? "naïve " : "water. ";
    std::vector<std::uint32_t> ids;
    tokenizer.encode(text, &ids);
    ids.push_back(tokenizer.eos_id());
    auto writer = data::TokenShardWriter::create(folder_ + "/" + name, tokenizer.vocab_size(),
                                                 tokenizer.eos_id(),
                                                 sha256.empty() ? tokenizer.sha256() : sha256);
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    ASSERT_TRUE(writer->append(ids, text.size(), 1).is_ok());
    ASSERT_TRUE(writer->finish().has_value());
  }

  static Output trainer(const std::string& arguments) {
    const std::string command = std::string(TAILOR_BIN_DIR) + "/tailor-trainer " + arguments +
                                " >" + folder_ + "/out 2>" + folder_ + "/err </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
            read_file(folder_ + "/out").value_or(""), read_file(folder_ + "/err").value_or("")};
  }
  static Output evaluate(const std::string& arguments) {
    return trainer("evaluate --model " + folder_ + "/trial " + arguments);
  }
  static json result_of(const Output& output) {
    EXPECT_EQ(output.exit_code, 0) << output.err;
    json result = json::parse(output.out, nullptr, false);
    EXPECT_TRUE(result.is_object()) << output.out;
    return result;
  }

  static std::unique_ptr<test::TemporaryFolder> temporary_;
  static std::string folder_;
  const std::string items_ = std::string(TAILOR_TEST_DATA) + "/model/eval";
};
std::unique_ptr<test::TemporaryFolder> EvaluateProgramTest::temporary_;
std::string EvaluateProgramTest::folder_;

TEST_F(EvaluateProgramTest, ScoresTasksOfATrialAndWritesRecords) {
  const std::string records = folder_ + "/a.jsonl";
  const json result =
      result_of(evaluate("--tasks arc_easy,piqa=" + items_ + "/piqa.release.jsonl --data " +
                         items_ + " --max-length 512 --json --records " + records));
  EXPECT_EQ(result["weights"], folder_ + "/trial/artifacts");
  EXPECT_EQ(result["tokenizer"]["path"], "bytes");
  EXPECT_EQ(result["tokenizer"]["adds_bos"], false);
  EXPECT_EQ(result["max_length"], 512);
  ASSERT_EQ(result["tasks"].size(), 2u);
  int right = 0;
  int lines = 0;
  const std::string written = read_file(records).value_or("");
  for (const std::string_view line : split(written, '\n')) {
    if (line.empty()) continue;
    const json record = json::parse(line);
    ++lines;
    if (record["task"] == "piqa") right += record["acc_norm"].get<int>();
  }
  EXPECT_EQ(lines, 10);
  EXPECT_EQ(result["tasks"]["piqa"]["items"], 5);
  EXPECT_DOUBLE_EQ(result["tasks"]["piqa"]["acc_norm"], right / 5.0);
  EXPECT_EQ(result["tasks"]["piqa"]["cut_items"], 0);
  EXPECT_THAT(evaluate("--tasks piqa --max-length 512 --data " + items_).out,
              HasSubstr("acc_norm"));
}

TEST_F(EvaluateProgramTest, LossOfTheShardsIsTheOneThatTheTrialReported) {
  double reported = 0;
  const std::string reports = read_file(folder_ + "/trial/reports.jsonl").value_or("");
  for (const std::string_view line : split(reports, '\n')) {
    const auto report = protocol::report_from_json(line);
    if (!report) continue;
    const auto* metric = std::get_if<protocol::MetricReport>(&report->body);
    if (metric != nullptr && metric->values.contains("validation_loss")) {
      reported = metric->values.at("validation_loss");
    }
  }
  EXPECT_GT(reported, 0);
  const std::string shards = "--tokens " + folder_ + "/validation.tokens --json ";
  const json result = result_of(evaluate(shards));
  const json& whole = result["perplexity"][0];
  EXPECT_NEAR(whole["loss"], reported, 1e-6 * reported);
  EXPECT_EQ(whole["window"], 32);
  EXPECT_GT(whole["loss_stderr"], 0);
  EXPECT_GT(whole["bits_per_byte"], 0);
  // A checkpoint of the trial holds the same weights.
  std::string checkpoint;
  for (const auto& entry : fs::directory_iterator(folder_ + "/trial/checkpoints")) {
    if (entry.is_directory()) checkpoint = std::max(checkpoint, entry.path().string());
  }
  ASSERT_FALSE(checkpoint.empty());
  const json again = result_of(trainer("evaluate --model " + checkpoint + " " + shards));
  EXPECT_EQ(again["perplexity"][0]["loss"], whole["loss"]);
  // More context for every token; a limit leaves the bytes unknown.
  const json strided = result_of(evaluate(shards + "--stride 4 --max-tokens 100 --seed 3"));
  EXPECT_EQ(strided["perplexity"][0]["scored_tokens"], 100);
  EXPECT_EQ(strided["perplexity"][0]["bits_per_byte"], nullptr);
}

TEST_F(EvaluateProgramTest, MeasuresATextFile) {
  std::ofstream(folder_ + "/text.txt") << "naïve water.";
  const json found = result_of(evaluate("--text " + folder_ + "/text.txt --json"))["perplexity"][0];
  EXPECT_EQ(found["scored_tokens"], 12);  // 13 bytes, the first not scored
  EXPECT_EQ(found["text_bytes"], 13);
  std::ofstream(folder_ + "/text.txt") << "a\xff";
  const Output bad = evaluate("--text " + folder_ + "/text.txt");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("offset 1"));
  std::ofstream(folder_ + "/text.txt") << "";
  EXPECT_THAT(evaluate("--text " + folder_ + "/text.txt").err, HasSubstr("at least two"));
}

TEST_F(EvaluateProgramTest, AByteOrderMarkIsNoTextAndUtf16IsRefusedByName) {
  const std::string file = folder_ + "/mark.txt";
  const auto measured = [&](std::string_view content) {
    std::ofstream(file, std::ios::binary) << content;
    return result_of(evaluate("--text " + file + " --json"))["perplexity"][0];
  };
  const json plain = measured("na\xC3\xAFve water.");
  const json marked = measured("\xEF\xBB\xBFna\xC3\xAFve water.");
  EXPECT_EQ(marked["tokens_sha256"], plain["tokens_sha256"]);
  EXPECT_EQ(marked["text_bytes"], 13);
  std::ofstream(file, std::ios::binary) << std::string_view("\xFF\xFEh\0i\0", 6);
  const Output wide = evaluate("--text " + file);
  EXPECT_EQ(wide.exit_code, 2);
  EXPECT_THAT(wide.err, HasSubstr("mark.txt is UTF-16LE text"));
}

// The README's layout: text.model beside, the data set's folder, the trial's.
TEST_F(EvaluateProgramTest, TheTokenizerTravelsWithShardsAndExports) {
  const std::string models = std::string(TAILOR_TEST_DATA) + "/model/tokenizers/";
  std::string text;
  for (int i = 0; i < 400; ++i) text += "Some words of text, number " + std::to_string(i) + "\n";
  fs::create_directories(folder_ + "/corpus");
  for (const char* name : {"a", "b"}) std::ofstream(folder_ + "/corpus/" + name + ".txt") << text;
  std::ofstream(folder_ + "/some.txt") << "Some words.";
  const std::string measure = " --text " + folder_ + "/some.txt --tokens '";
  const std::string model_sha256 = sha256_hex(*read_file(models + "plain.model"));
  for (const std::string name : {"plain.model", "byte_level.json"}) {
    const std::string data = "data-" + name;
    const std::string given = folder_ + "/given-" + name;
    fs::copy_file(models + name, given);
    const std::string prepare = std::string(TAILOR_BIN_DIR) + "/tailor-tokenize prepare " +
                                folder_ + "/corpus/a.txt --validation " + folder_ +
                                "/corpus/b.txt --out " + folder_ + "/" + data + " --tokenizer " +
                                given + " >/dev/null 2>&1";
    ASSERT_EQ(std::system(prepare.c_str()), 0);
    fs::remove(given);
    const json manifest = json_of(data + "/dataset.json")["tokenizer"];
    if (name == "plain.model") {
      EXPECT_EQ(manifest["sha256"], model_sha256);
    }
    const std::string trial = "trial-" + name;
    train(trial, data + "/train-*.tokens", data + "/validation-*.tokens", manifest["vocab_size"]);
    for (const char* config : {"config.json", "generation_config.json"}) {
      const json exported = json_of(trial + "/artifacts/" + config);
      EXPECT_EQ(exported["eos_token_id"], manifest["eos_id"]) << config;
      EXPECT_EQ(exported["bos_token_id"], manifest.value("bos_id", json())) << config;
    }
    const std::string shards = folder_ + "/" + data + "/validation-*.tokens' --json";
    const auto expect_own = [&](const std::string& model, const char* found) {
      const Output output = trainer("evaluate --model " + folder_ + "/" + model + measure + shards);
      const json tokenizer = result_of(output)["tokenizer"];
      EXPECT_EQ(tokenizer["sha256"], manifest["sha256"]) << model;
      EXPECT_EQ(tokenizer["found"], found) << model;
      EXPECT_EQ(tokenizer["checked"], true) << model;
      EXPECT_THAT(output.err, HasSubstr(found));
    };
    expect_own(trial, "exported with the weights");
    // Alone, without the trial and with the data set elsewhere.
    fs::copy(folder_ + "/" + trial + "/artifacts", folder_ + "/alone-" + name);
    expect_own("alone-" + name, "exported with the weights");
    const Output other = trainer("evaluate --model " + folder_ + "/alone-" + name + measure +
                                 folder_ + "/validation.tokens'");
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_THAT(other.err, HasSubstr("is not the tokenizer of"));
    // A tokenizer that was put in its place is found out.
    const std::string kept =
        folder_ + "/alone-" + name + "/" + manifest["files"][0]["file"].get<std::string>();
    fs::copy_file(models + (name == "plain.model" ? "prefixed.model" : "marked.json"), kept,
                  fs::copy_options::overwrite_existing);
    EXPECT_EQ(
        trainer("evaluate --model " + folder_ + "/alone-" + name + measure + shards).exit_code, 2);
    // Before there is an export.
    fs::remove_all(folder_ + "/" + trial + "/artifacts");
    expect_own(trial, "kept with the data set");
  }
}

TEST_F(EvaluateProgramTest, ABytesModelIsExportedWithATokenizerForOthers) {
  EXPECT_EQ(json_of("trial/artifacts/config.json")["eos_token_id"], 256);
  EXPECT_EQ(json_of("trial/artifacts/tokenizer_config.json")["eos_token"], "</s>");
  fs::copy(folder_ + "/trial/artifacts", folder_ + "/alone");
  std::ofstream(folder_ + "/text.txt") << "naïve water.";
  const json result =
      result_of(trainer("evaluate --model " + folder_ + "/alone --text " + folder_ +
                        "/text.txt --tokens " + folder_ + "/validation.tokens --json"));
  EXPECT_EQ(result["tokenizer"]["sha256"], tokenizers::make_byte_tokenizer()->sha256());
  EXPECT_EQ(result["perplexity"][0]["tokens"], 13);
}

TEST_F(EvaluateProgramTest, IdsThatWereImportedAloneTakeATokenizerThatIsGiven) {
  const auto bytes = tokenizers::make_byte_tokenizer();
  const std::string unknown = data::unknown_tokenizer_sha256(257, 256);
  fs::create_directories(folder_ + "/imported");
  write_shard("imported/train.tokens", *bytes, 4000, unknown);
  write_shard("imported/validation.tokens", *bytes, 300, unknown);
  train("trial-imported", "imported/train.tokens", "imported/validation.tokens", 257);
  EXPECT_EQ(json_of("trial-imported/artifacts/config.json")["eos_token_id"], 256);
  std::ofstream(folder_ + "/text.txt") << "naïve water.";
  const std::string command =
      "evaluate --model " + folder_ + "/trial-imported --text " + folder_ + "/text.txt --json";
  const Output alone = trainer(command);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("imported without one"));
  const Output given = trainer(command + " --tokenizer bytes");
  EXPECT_EQ(result_of(given)["tokenizer"]["checked"], false);
  EXPECT_THAT(given.err, HasSubstr("cannot be checked"));
}

TEST_F(EvaluateProgramTest, ComparesTwoRunsItemByItem) {
  const std::string common = "--tasks piqa --max-length 512 --data " + items_ + " --records ";
  ASSERT_EQ(evaluate(common + folder_ + "/all.jsonl").exit_code, 0);
  ASSERT_EQ(evaluate(common + folder_ + "/some.jsonl --limit 3 --dtype bf16").exit_code, 0);
  const json result = result_of(
      trainer("evaluate --compare " + folder_ + "/all.jsonl " + folder_ + "/some.jsonl --json"));
  const json& piqa = result["tasks"]["piqa"];
  EXPECT_EQ(piqa["items"], 3);
  EXPECT_EQ(piqa["only_in_a"], 2);
  EXPECT_EQ(piqa["acc"]["both_right"].get<int>() + piqa["acc"]["only_a_right"].get<int>() +
                piqa["acc"]["only_b_right"].get<int>() + piqa["acc"]["both_wrong"].get<int>(),
            3);
  EXPECT_LE(piqa["acc"]["p"], 1);
  const Output table =
      trainer("evaluate --compare " + folder_ + "/all.jsonl " + folder_ + "/all.jsonl");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("acc_bytes"));
}

TEST_F(EvaluateProgramTest, SaysWhatIsWrong) {
  const struct {
    std::string arguments;
    int exit_code;
    const char* message;
  } cases[] = {
      {"evaluate", 2, "give --model"},
      {"evaluate --model " + folder_ + "/trial", 2, "nothing to measure"},
      {"evaluate --model " + folder_ + " --text x", 2, "no model there"},
      {"evaluate --model " + folder_ + "/trial --tasks arc --data " + items_, 2, "no task \"arc\""},
      {"evaluate --model " + folder_ + "/trial --tasks piqa,piqa --data " + items_, 2, "twice"},
      {"evaluate --model " + folder_ + "/trial --tasks piqa --data " + items_, 2,
       "the model reads 32"},
      {"evaluate --model " + folder_ + "/trial --text x --records r", 2, "--records needs --tasks"},
      {"evaluate --model " + folder_ + "/trial --tokens " + folder_ + "/trial/spec.json", 3,
       "spec.json"},
      {"evaluate --model " + folder_ + "/trial --tokens '" + folder_ + "/*.none'", 2, "*.none"},
      {"evaluate --model " + folder_ + "/trial --text x --device gpu", 2, "\"cuda:N\""},
      {"evaluate --model x --compare a b", 2, "no model"},
      {"evaluate --compare " + folder_ + "/absent " + folder_ + "/absent", 2, "absent"},
  };
  for (const auto& wrong : cases) {
    const Output output = trainer(wrong.arguments);
    EXPECT_EQ(output.exit_code, wrong.exit_code) << wrong.arguments << ": " << output.err;
    EXPECT_THAT(output.err, HasSubstr(wrong.message)) << wrong.arguments;
    EXPECT_EQ(output.out, "") << wrong.arguments;
  }
}

TEST_F(EvaluateProgramTest, RefusesATokenizerThatTheModelWasNotTrainedWith) {
  auto writer =
      data::TokenShardWriter::create(folder_ + "/other.tokens", 257, 256, std::string(64, 'b'));
  const std::vector<std::uint32_t> ids = {1, 2, 3};
  ASSERT_TRUE(writer->append(ids, 3, 1).is_ok());
  ASSERT_TRUE(writer->finish().has_value());
  const Output output = evaluate("--tokens " + folder_ + "/other.tokens");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_THAT(output.err, HasSubstr("another tokenizer"));
}

}  // namespace
}  // namespace tailor
