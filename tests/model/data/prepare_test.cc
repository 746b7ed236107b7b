#include "model/data/prepare.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/rng.h"
#include "model/data/dataset.h"
#include "model/tokenizers/open_tokenizer.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

class Prepare : public TemporaryFolder {
 protected:
  void SetUp() override {
    for (int i = 0; i < 200; ++i) {
      write("corpus/" + std::to_string(i) + ".txt", "document " + std::to_string(i) + "\n");
    }
    options_.folder = path("out");
    options_.tokenizer_name = "bytes";
    options_.validation_fraction = 0.2;
    options_.threads = 2;
  }

  Result<PrepareSummary> prepare() {
    return prepare_dataset({path("corpus")}, *tokenizers::make_byte_tokenizer(), options_);
  }

  /// The documents of a split, as they lie in its shards.
  std::vector<std::string> documents(const std::string& split) {
    const auto dataset = Dataset::open_glob(path("out/" + split + "-*.tokens"), {});
    EXPECT_TRUE(dataset.has_value()) << dataset.error().to_string();
    std::vector<std::uint32_t> ids(dataset->token_count());
    EXPECT_TRUE(dataset->read(0, ids).is_ok());
    EXPECT_EQ(ids.back(), 256u);
    std::vector<std::string> all(1);
    for (const std::uint32_t id : ids) {
      if (id == 256) {
        all.emplace_back();
      } else {
        all.back() += static_cast<char>(id);
      }
    }
    all.pop_back();
    return all;
  }

  std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder))) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  PrepareOptions options_;
};

TEST_F(Prepare, EveryDocumentIsInOneSplitAndEndsWithEos) {
  const auto summary = prepare();
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  const auto train = documents("train");
  const auto validation = documents("validation");
  std::set<std::string> all(train.begin(), train.end());
  all.insert(validation.begin(), validation.end());
  EXPECT_EQ(train.size() + validation.size(), 200u);
  EXPECT_EQ(all.size(), 200u);
  EXPECT_NEAR(static_cast<double>(validation.size()), 40, 5 * std::sqrt(200 * 0.2 * 0.8));
  EXPECT_EQ(summary->manifest.splits[kTrain].documents(), train.size());
  EXPECT_EQ(summary->manifest.splits[kTrain].tokens(),
            summary->manifest.splits[kTrain].text_bytes() + train.size());
  EXPECT_EQ(summary->manifest.splits[kTrain].content_hash(),
            Dataset::open_glob(path("out/train-*.tokens"), {})->content_hash());
}

TEST_F(Prepare, TheSplitOfADocumentDoesNotChangeWhenTheCorpusGrowsOrMoves) {
  ASSERT_TRUE(prepare().has_value());
  const auto before = documents("validation");
  for (int i = 200; i < 300; ++i) write("corpus/" + std::to_string(i) + ".txt", "new\n");
  std::filesystem::rename(path("corpus"), path("moved"));
  options_.overwrite = true;
  ASSERT_TRUE(
      prepare_dataset({path("moved")}, *tokenizers::make_byte_tokenizer(), options_).has_value());
  auto after = documents("validation");
  std::erase(after, "new\n");
  EXPECT_EQ(after, before);
}

TEST_F(Prepare, ALargerFractionHoldsOutTheSameDocumentsAndMore) {
  for (int i = 0; i < 1000; ++i) {
    const std::string name = std::to_string(i);
    EXPECT_FALSE(is_validation_document(name, 0));
    EXPECT_LE(is_validation_document(name, 0.1), is_validation_document(name, 0.3));
  }
}

TEST_F(Prepare, TheShardsAreTheSameForAnyNumberOfThreads) {
  for (int i = 0; i < 40; ++i) {
    write("corpus/big" + std::to_string(i) + ".txt",
          std::string(300'000, static_cast<char>('a' + i % 26)));
  }
  const auto one = prepare();
  options_.threads = 5;
  options_.overwrite = true;
  const auto five = prepare();
  ASSERT_TRUE(one.has_value() && five.has_value());
  EXPECT_EQ(one->manifest, five->manifest);
}

TEST_F(Prepare, LongDocumentsHaveOneEosAndShardsAreCutAtTheirSize) {
  std::filesystem::remove_all(path("corpus"));
  std::string text;
  while (text.size() < 5'000'000) text += "a line of text\n";
  write("corpus/long.txt", text);
  options_.validation_fraction = 0;
  options_.shard_tokens = 1'500'000;
  options_.corpus.piece_bytes = 100'000;
  const auto summary = prepare();
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(summary->manifest.splits[kTrain].shards.size(), 4u);
  EXPECT_EQ(documents("train"), std::vector<std::string>{text});
  EXPECT_EQ(names_in("out"),
            (std::vector<std::string>{"dataset.json", "train-00000.tokens", "train-00001.tokens",
                                      "train-00002.tokens", "train-00003.tokens"}));
}

// Space marks, prefixes, spaces that tokens take: none is made or lost where a document is cut.
TEST_F(Prepare, ALongDocumentHasTheIdsOfItsWholeText) {
  std::string words, lines;
  Rng rng(3);
  const char* some[] = {"the", "cat", " ", "  ", "\n", "<i>", "e\xCC\x81", "hi", " ok", "12", "x."};
  while (words.size() < 3'200'000) words += std::string(some[rng.below(11)]) + " ";
  for (int i = 0; i < 400'000; ++i) lines += "ab\n";
  const std::string folder = std::string(TAILOR_TEST_DATA) + "/model/tokenizers/";
  const auto marked = read_file(folder + "marked.json");
  nlohmann::json metaspace = nlohmann::json::parse(*marked);
  metaspace["normalizer"] = nullptr;
  metaspace["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "always"}};
  nlohmann::json prefix = nlohmann::json::parse(*read_file(folder + "byte_level.json"));
  prefix["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  options_.validation_fraction = 0;
  options_.overwrite = true;
  for (const std::string& tokenizer :
       {folder + "prefixed.model", write("m/tokenizer.json", metaspace.dump()),
        write("p/tokenizer.json", prefix.dump())}) {
    const auto opened = tokenizers::open_tokenizer(tokenizer);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    std::filesystem::remove_all(path("corpus"));
    write("corpus/1.txt", words);
    write("corpus/2.txt", lines);
    write("corpus/3.jsonl", nlohmann::json{{"text", words}}.dump() + "\n" +
                                nlohmann::json{{"text", "short"}}.dump() + "\n");
    std::vector<std::uint32_t> wanted;
    for (const std::string& text : {words, lines, words, std::string("short")}) {
      (*opened)->encode(text, &wanted);
      wanted.push_back((*opened)->eos_id());
    }
    const auto summary = prepare_dataset({path("corpus")}, **opened, options_);
    ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
    const auto dataset = Dataset::open_glob(path("out/train-*.tokens"), {});
    std::vector<std::uint32_t> ids(dataset->token_count());
    ASSERT_TRUE(dataset->read(0, ids).is_ok());
    EXPECT_TRUE(ids == wanted) << tokenizer;
  }
}

TEST_F(Prepare, ATextThatCannotBeCutIsRefusedByNameBeyondALimit) {
  const auto opened = tokenizers::open_tokenizer(std::string(TAILOR_TEST_DATA) +
                                                 "/model/tokenizers/byte_level.json");
  ASSERT_TRUE(opened.has_value());
  std::filesystem::remove_all(path("corpus"));
  write("corpus/1.txt", "short text");
  write("corpus/2.txt", std::string(300'000, 'a'));
  options_.validation_fraction = 0;
  options_.corpus.piece_bytes = 50'000;
  options_.corpus.uncut_bytes_max = 1'000'000;
  EXPECT_TRUE(prepare_dataset({path("corpus")}, **opened, options_).has_value());
  options_.overwrite = true;
  options_.corpus.uncut_bytes_max = 200'000;
  write("corpus/3.jsonl", "{\"text\": \"" + std::string(400'000, 'a') + "\"}\n{\"text\":\"b\"}\n");
  const auto refused = prepare_dataset({path("corpus")}, **opened, options_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("2.txt"), std::string::npos);
  options_.corpus.skip_bad = true;
  const auto passed = prepare_dataset({path("corpus")}, **opened, options_);
  ASSERT_TRUE(passed.has_value()) << passed.error().message();
  EXPECT_EQ(passed->manifest.splits[kTrain].documents(), 2u);
}

TEST_F(Prepare, AnotherDataSetIsReplacedOnlyWhenAsked) {
  options_.shard_tokens = 1;  // one block, one shard
  ASSERT_TRUE(prepare().has_value());
  write("out/train-00001.tokens", "of a longer earlier run");
  write("out/train-extra.tokens", "somebody else's");
  options_.validation_fraction = 0.3;
  const auto refused = prepare();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
  EXPECT_NE(refused.error().message().find("validation_fraction 0.2 then, 0.3 now"),
            std::string::npos)
      << refused.error().message();
  options_.overwrite = true;
  ASSERT_TRUE(prepare().has_value());
  EXPECT_EQ(names_in("out"),
            (std::vector<std::string>{"dataset.json", "train-00000.tokens", "train-extra.tokens",
                                      "validation-00000.tokens"}));
}

TEST_F(Prepare, TheSameCallAgainFindsItselfDone) {
  const auto first = prepare();
  ASSERT_TRUE(first.has_value());
  const auto again = prepare();
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_TRUE(again->already_done);
  EXPECT_EQ(again->manifest, first->manifest);
  write("corpus/7.txt", "DOCUMENT 7\n");  // as long as before
  const auto changed = prepare();
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(changed.error().code(), Code::kAlreadyExists);
  EXPECT_NE(changed.error().message().find("7.txt has changed"), std::string::npos);
}

TEST_F(Prepare, AFailureLeavesTheEarlierDataSetWhole) {
  ASSERT_TRUE(prepare().has_value());
  const auto before = content_of(path("out/train-00000.tokens"));
  const auto manifest = content_of(path("out/dataset.json"));
  write("corpus/zzz.txt", "bad \xff");
  options_.overwrite = true;
  const auto failed = prepare();
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(content_of(path("out/train-00000.tokens")), before);
  EXPECT_EQ(content_of(path("out/dataset.json")), manifest);
  EXPECT_TRUE(verify_dataset(path("out"))->empty());
}

TEST_F(Prepare, TheManifestNamesShardsSourcesAndTokenizer) {
  write("corpus/empty.txt", "");
  const auto summary = prepare();
  ASSERT_TRUE(summary.has_value());
  const auto manifest = load_manifest(path("out"));
  ASSERT_TRUE(manifest.has_value()) << manifest.error().to_string();
  EXPECT_EQ(*manifest, summary->manifest);
  EXPECT_EQ(manifest->tokenizer.sha256, tokenizers::make_byte_tokenizer()->sha256());
  ASSERT_EQ(manifest->sources.size(), 201u);
  const ManifestSource& first = manifest->sources[0];  // "0.txt"
  EXPECT_EQ(first.name, "0.txt");
  EXPECT_EQ(first.bytes, 11u);
  EXPECT_EQ(first.sha256, sha256_hex("document 0\n"));
  EXPECT_EQ(first.documents, 1u);
  EXPECT_EQ(manifest->sources.back().empty_documents, 1u);
  EXPECT_EQ(manifest->splits[kTrain].shards[0].sha256,
            TokenShardReader::open(path("out/train-00000.tokens"))->info().sha256);
}

/// Ends the run like a kill would: from inside, at the n-th call of progress.
class Killed : public Prepare {
 protected:
  void SetUp() override {
    Prepare::SetUp();
    // Several blocks, several shards, long documents, JSON lines longer than a piece, gzip.
    for (int i = 0; i < 6; ++i) {
      std::string text;
      while (text.size() < 60'000) {
        text += "line " + std::to_string(text.size() * (i + 1)) + " of text\n";
      }
      write("corpus/long" + std::to_string(i) + ".txt", text);
      std::string line = "{\"id\": 1, \"text\": \"" + std::string(90'000, 'a' + char(i)) + "\"}\n";
      write("corpus/lines" + std::to_string(i) + ".jsonl.gz",
            gzip("{\"text\": \"short\"}\n" + line + "{\"text\": \"last \\u00e9\"}"));
    }
    write("corpus/marked.txt", "\xEF\xBB\xBF" + std::string(90'000, 'm'));
    write("corpus/picture.png", "x");
    options_.tokenizer_parts = {{"tokenizer.model", "kept"}};
    options_.corpus.piece_bytes = 40 << 10;
    options_.shard_tokens = 150'000;
    options_.save_every_s = 0;  // after every block
  }

  /// Runs prepare in a child that dies at its `block`-th progress; whether it died.
  bool killed_at(int block) {
    const pid_t child = ::fork();
    if (child == 0) {
      int seen = 0;
      options_.progress = [&](const DataProgress&) {
        if (++seen == block) ::kill(::getpid(), SIGKILL);
      };
      ::_exit(prepare().has_value() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
    return WIFSIGNALED(status);
  }

  std::map<std::string, std::string> files_of(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const std::string& name : names_in(folder))
      files[name] = content_of(path(folder + "/" + name));
    return files;
  }
};

TEST_F(Killed, ARunThatIsKilledAndRunAgainGivesTheSameBytes) {
  options_.folder = path("whole");
  ASSERT_TRUE(prepare().has_value());
  const auto whole = files_of("whole");
  ASSERT_GE(whole.size(), 7u);
  int kills = 0;
  for (int block = 1; block < 9; ++block) {
    options_.folder = path("out");
    options_.threads = 1 + block % 3;
    std::filesystem::remove_all(path("out"));
    kills += killed_at(block) ? 1 : 0;
    kills += killed_at(2) ? 1 : 0;  // and once more on the way
    const auto summary = prepare();
    ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
    EXPECT_TRUE(files_of("out") == whole) << "killed at block " << block;
    EXPECT_EQ(summary->resumed_tokens > 0, block > 1 || !summary->already_done) << block;
  }
  EXPECT_GE(kills, 8);
}

TEST_F(Killed, WhatIsTornOffTheJournalIsDoneAgain) {
  options_.folder = path("whole");
  ASSERT_TRUE(prepare().has_value());
  const auto whole = files_of("whole");
  options_.folder = path("out");
  ASSERT_TRUE(killed_at(5));
  const std::string journal = content_of(path("out/prepare.journal"));
  std::filesystem::copy(path("out"), path("kept"), std::filesystem::copy_options::recursive);
  for (std::size_t size = 0; size <= journal.size(); size += journal.size() / 14) {
    std::filesystem::remove_all(path("out"));
    std::filesystem::copy(path("kept"), path("out"), std::filesystem::copy_options::recursive);
    write("out/prepare.journal", journal.substr(0, size) + (size % 2 == 0 ? "" : "garbage\n"));
    const auto summary = prepare();
    ASSERT_TRUE(summary.has_value()) << size << summary.error().to_string();
    ASSERT_TRUE(files_of("out") == whole) << "journal cut at " << size;
  }
}

TEST_F(Killed, SourcesThatChangeBetweenRunsAreReadAgain) {
  options_.folder = path("out");
  ASSERT_TRUE(killed_at(5));
  write("corpus/lines3.jsonl.gz", gzip("{\"text\": \"another\"}\n"));
  ASSERT_TRUE(prepare().has_value());
  options_.folder = path("whole");
  ASSERT_TRUE(prepare().has_value());
  EXPECT_TRUE(files_of("out") == files_of("whole"));
}

TEST_F(Killed, AnotherRequestIsRefusedUntilTheUnfinishedRunIsGivenUp) {
  options_.folder = path("out");
  ASSERT_TRUE(killed_at(3));
  options_.corpus.text_key = "body";
  const auto refused = prepare();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
  EXPECT_NE(refused.error().message().find("text_key text then, body now"), std::string::npos)
      << refused.error().message();
  write("corpus/new.txt", "one more");
  options_.corpus.text_key = "text";
  EXPECT_EQ(prepare().error().code(), Code::kFailedPrecondition);
  options_.overwrite = true;
  EXPECT_TRUE(prepare().has_value());
}

TEST_F(Killed, AnAlteredPartialShardIsFound) {
  options_.folder = path("out");
  ASSERT_TRUE(killed_at(2));
  std::string partial;
  for (const std::string& name : names_in("out")) {
    if (name.starts_with("train") && name.ends_with(".partial")) partial = "out/" + name;
  }
  ASSERT_FALSE(partial.empty());
  std::string bytes = content_of(path(partial));
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  write(partial, bytes);
  const auto failed = prepare();
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kDataLoss);
  EXPECT_NE(failed.error().message().find("--overwrite"), std::string::npos);
}

TEST_F(Killed, TwoRunsAtOnceDoNotWriteOneFolder) {
  options_.folder = path("out");
  Status inner;
  options_.progress = [&](const DataProgress&) {
    PrepareOptions other = options_;
    other.progress = {};
    if (inner)
      inner =
          status_of(prepare_dataset({path("corpus")}, *tokenizers::make_byte_tokenizer(), other));
  };
  ASSERT_TRUE(prepare().has_value());
  EXPECT_EQ(inner.code(), Code::kFailedPrecondition) << inner.to_string();
}

TEST_F(Prepare, TheTokenizerLiesInTheFolder) {
  options_.tokenizer_parts = {{"tokenizer.json", "{}"}, {"tokenizer_config.json", "{\"a\": 1}"}};
  const auto first = prepare();
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  EXPECT_EQ(content_of(path("out/tokenizer.json")), "{}");
  EXPECT_EQ(
      first->manifest.tokenizer.files,
      (std::vector<ManifestTokenizerFile>{{"tokenizer.json", 2, sha256_hex("{}")},
                                          {"tokenizer_config.json", 8, sha256_hex("{\"a\": 1}")}}));
  EXPECT_EQ(*load_manifest(path("out")), first->manifest);
  EXPECT_TRUE(verify_dataset(path("out"))->empty());
  EXPECT_EQ(*kept_tokenizer(path("out"), first->manifest), path("out/tokenizer.json"));
  EXPECT_TRUE(prepare()->already_done);
  // Another data set in its place takes what is not its own away.
  options_.tokenizer_parts = {{"tokenizer.model", "m"}};
  options_.overwrite = true;
  ASSERT_TRUE(prepare().has_value());
  EXPECT_EQ(names_in("out"),
            (std::vector<std::string>{"dataset.json", "tokenizer.model", "train-00000.tokens",
                                      "validation-00000.tokens"}));
  for (const std::string damage : {"altered", ""}) {
    if (damage.empty()) {
      std::filesystem::remove(path("out/tokenizer.model"));
    } else {
      write("out/tokenizer.model", damage);
    }
    ASSERT_EQ(verify_dataset(path("out"))->size(), 1u);
    EXPECT_NE(verify_dataset(path("out"))->front().message().find("tokenizer.model"),
              std::string::npos);
    EXPECT_FALSE(kept_tokenizer(path("out"), *load_manifest(path("out"))).has_value());
  }
}

TEST_F(Prepare, ATokenizerOfSomebodyElseIsNeverReplaced) {
  write("out/tokenizer.json", "somebody's");
  options_.tokenizer_parts = {{"tokenizer.json", "ours"}};
  for (const bool overwrite : {false, true}) {
    options_.overwrite = overwrite;
    const auto refused = prepare();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
    EXPECT_NE(refused.error().message().find("tokenizer.json"), std::string::npos);
  }
  EXPECT_EQ(content_of(path("out/tokenizer.json")), "somebody's");
  write("out/tokenizer.json", "ours");  // the one that was given
  EXPECT_TRUE(prepare().has_value());
}

TEST_F(Prepare, TheManifestSaysWhatWasPassedOver) {
  write("corpus/picture.png", "x");
  const auto summary = prepare();
  ASSERT_TRUE(summary.has_value());
  const std::vector<PassedOver> expected = {{".png", 1, "picture.png"}};
  EXPECT_EQ(summary->passed_over, expected);
  EXPECT_EQ(load_manifest(path("out"))->passed_over, expected);
  // It is the folder of now that is described, but another picture makes no other data set.
  write("corpus/other.png", "x");
  const auto again = prepare();
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_TRUE(again->already_done);
  EXPECT_EQ(again->passed_over, (std::vector<PassedOver>{{".png", 2, "other.png"}}));
}

TEST_F(Prepare, ASplitWithoutDocumentsIsRefusedWithAdvice) {
  std::filesystem::remove_all(path("corpus"));
  write("corpus/0.txt", "one document");
  const auto result = prepare();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_NE(result.error().message().find("--validation"), std::string::npos);
  EXPECT_TRUE(names_in("out").empty());  // nothing to go on with
}

TEST_F(Prepare, ValidationTextMayBeNamed) {
  write("held/out.txt", "held out");
  options_.validation_inputs = {path("held")};
  ASSERT_TRUE(prepare().has_value());
  EXPECT_EQ(documents("validation"), std::vector<std::string>{"held out"});
  EXPECT_EQ(documents("train").size(), 200u);
}

TEST_F(Prepare, ImpossibleOptionsAreRefused) {
  const auto code_with = [&](auto change) {
    PrepareOptions options = options_;
    change(&options);
    return prepare_dataset({path("corpus")}, *tokenizers::make_byte_tokenizer(), options)
        .error()
        .code();
  };
  EXPECT_EQ(code_with([](auto* o) { o->validation_fraction = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->validation_fraction = std::nan(""); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->folder = ""; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->shard_tokens = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->threads = 0; }), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::data
