// The SentencePiece tokenizer, and the program tailor-tokenize as users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/rng.h"
#include "model/data/dataset.h"
#include "model/data/sentencepiece_training.h"
#include "model/tokenizers/sentencepiece_tokenizer.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Multilingual text, code, emoji, and what tokenizers are known to lose.
std::vector<std::string> difficult_texts() {
  return {
      "",
      " ",
      "   leading and trailing   ",
      "a\n\n\n  b\r\n\tc\t\td \n",
      "The quick brown fox jumps over the lazy dog.",
      "Größe naïve Ångström ﬁne ① Ａ x\xC2\xA0y \xE3\x80\x80z",
      "Привет, мир! Καλημέρα κόσμε. 안녕하세요 세계",
      "中文文本没有空格。日本語のテキスト、かな漢字。",
      "שלום עולם مرحبا بالعالم हिन्दी ไทย",
      "👩‍👩‍👧‍👦 🏳️‍🌈 😀😀😀 𝄞 e\xCC\x81",
      "for (int i = 0; i < n; ++i) {\n\tif (x[i] == '\\0') return -1;  // ok\n}\n",
      "<s> </s> <unk> <0x0A> <0xE2> <pad>",
      "\xE2\x96\x81 a\xE2\x96\x81"
      "b \xE2\x96\x81\xE2\x96\x81 \xE2\x81\x87",  // SentencePiece's space and unknown mark
      "not first: \xEF\xBB\xBF"
      "byte order mark \xEF\xBF\xBD \xEF\xBF\xBE",
      std::string("nul \0 byte", 10),
      std::string(200'000, 'x') + "€",
      std::string(5000, ' ') + "end",
  };
}

class SentencePiece : public TemporaryFolder {
 protected:
  /// Writes a corpus of English, code and a little of everything.
  void write_corpus() {
    const char* words[] = {"the",      "kernel",  "driver", "of",        "and",
                           "memory",   "returns", "struct", "device",    "pointer",
                           "function", "called",  "when",   "interrupt", "is",
                           "to",       "a",       "in",     "not",       "must"};
    Rng rng(7);
    for (int file = 0; file < 60; ++file) {
      std::string text;
      for (int line = 0; line < 150; ++line) {
        for (int word = 0; word < 9; ++word) text += std::string(words[rng.below(20)]) + " ";
        text += line % 5 == 0 ? "return x->" + std::to_string(rng.below(1000)) + ";\n" : "\n";
        if (line % 50 == 0) text += "größe привет 世界 👍\t\tx\n";
      }
      write("corpus/" + std::to_string(file) + ".txt", text);
    }
  }

  std::unique_ptr<tokenizers::SentencePieceTokenizer> train(std::uint32_t vocab_size) {
    write_corpus();
    TrainingOptions options;
    options.vocab_size = vocab_size;
    const auto trained = train_sentencepiece({path("corpus")}, options);
    EXPECT_TRUE(trained.has_value()) << trained.error().to_string();
    write("m.model", trained->model);
    auto loaded = tokenizers::load_sentencepiece(path("m.model"));
    EXPECT_TRUE(loaded.has_value()) << loaded.error().to_string();
    return std::move(loaded).value();
  }
};

TEST_F(SentencePiece, DecodesEveryTextToItself) {
  const auto tokenizer = train(500);
  ASSERT_TRUE(tokenizer->is_lossless());
  EXPECT_EQ(tokenizer->vocab_size(), 500u);
  for (const std::string& text : difficult_texts()) {
    std::vector<std::uint32_t> ids;
    tokenizer->encode(text, &ids);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->eos_id()), 0);
    const auto decoded = tokenizer->decode(ids);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_TRUE(*decoded == text) << text.substr(0, 100);
  }
}

TEST_F(SentencePiece, EncodingByWordsGivesTheIdsOfSentencePieceForTheWholeText) {
  const auto tokenizer = train(500);
  std::vector<std::string> texts = difficult_texts();
  texts.push_back(content_of(path("corpus/3.txt")));
  for (const std::string& text : texts) {
    // Its own space mark is the one thing SentencePiece does not keep; words over 64 kB are cut.
    if (text.find("\xE2\x96\x81") != std::string::npos || text.size() > 100'000) continue;
    std::vector<std::uint32_t> ids;
    tokenizer->encode(text, &ids);
    EXPECT_EQ(ids, tokenizer->encode_whole(text)) << text.substr(0, 100);
    std::vector<std::uint32_t> again;
    tokenizer->clone()->encode(text, &again);
    EXPECT_EQ(again, ids);
  }
}

TEST_F(SentencePiece, PartsOfALongTextHaveTheIdsOfTheWhole) {
  std::string words, lines, solid;
  Rng rng(9);
  const char* some[] = {"the",    "kernel", " ",         "  ",           "\n",  "<i>",
                        "return", "x->",    "e\xCC\x81", "\xE2\x96\x81", "世界"};
  while (words.size() < 3'200'000)
    words += std::string(some[rng.below(11)]) + (rng.below(2) ? " " : "");
  for (int i = 0; i < 400'000; ++i) lines += "ab\n";
  while (solid.size() < 3'000'000) solid += static_cast<char>('!' + rng.below(94));
  const std::string folder = std::string(TAILOR_TEST_DATA) + "/model/tokenizers/";
  std::vector<std::unique_ptr<tokenizers::SentencePieceTokenizer>> all;
  all.push_back(train(500));
  for (const char* name : {"plain.model", "prefixed.model"}) {
    all.push_back(tokenizers::load_sentencepiece(folder + name).value());
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const std::string& text : {words, lines, solid, std::string(300'000, 'x')}) {
      // The library itself, for models that are used as they are.
      std::vector<std::uint32_t> whole, parts;
      if (all[i]->is_lossless()) all[i]->encode(text, &whole);
      if (!all[i]->is_lossless()) whole = all[i]->encode_whole(text);
      bool begins = true;
      std::size_t count = 0;
      for (std::string_view rest = text; !rest.empty(); begins = false, ++count) {
        std::size_t window = 100'000;
        while (window < rest.size() && (rest[window] & 0xC0) == 0x80) ++window;
        const bool ends = rest.size() <= window;
        std::size_t cut = ends ? rest.size() : all[i]->last_cut(rest.substr(0, window));
        if (cut == 0) cut = rest.size();
        all[i]->encode_part(rest.substr(0, cut), {begins, cut == rest.size()}, &parts);
        rest.remove_prefix(cut);
      }
      EXPECT_TRUE(parts == whole) << i << ", a text of " << text.size();
      EXPECT_GT(count, text.size() > 1'000'000 ? 10u : 0u) << i;
    }
  }
}

TEST_F(SentencePiece, LearnsTheWordsOfTheCorpus) {
  const auto tokenizer = train(500);
  std::vector<std::uint32_t> ids;
  tokenizer->encode("the kernel driver of memory returns struct device pointer function", &ids);
  EXPECT_LE(ids.size(), 12u);  // ten words
}

TEST_F(SentencePiece, TheSameCorpusGivesTheSameModel) {
  write_corpus();
  TrainingOptions options;
  options.vocab_size = 400;
  options.sample_bytes = 100'000;
  const auto a = train_sentencepiece({path("corpus")}, options);
  const auto b = train_sentencepiece({path("corpus")}, options);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_TRUE(a->model == b->model);
  EXPECT_NEAR(static_cast<double>(a->sample_bytes), 100'000, 60'000);
  EXPECT_GT(a->corpus_bytes, 300'000u);
}

TEST_F(SentencePiece, ManyRareCharactersDoNotEatTheVocabulary) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) {
    text += "the kernel driver memory ";
    const int code = 0x4E00 + i % 5000;
    text += {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
             static_cast<char>(0x80 | (code & 0x3F)), '\n'};
  }
  write("corpus/a.txt", text);
  TrainingOptions options;
  options.vocab_size = 310;
  const auto trained = train_sentencepiece({path("corpus")}, options);
  ASSERT_TRUE(trained.has_value()) << trained.error().to_string();
  write("m.model", trained->model);
  const auto tokenizer = tokenizers::load_sentencepiece(path("m.model"));
  std::vector<std::uint32_t> ids;
  (*tokenizer)->encode("the kernel driver memory", &ids);
  EXPECT_LE(ids.size(), 4u);
}

TEST_F(SentencePiece, ModelsThatAreCutOrMissingAreTypedErrors) {
  const auto tokenizer = train(400);
  const std::string whole = content_of(path("m.model"));
  EXPECT_EQ(tokenizers::load_sentencepiece(path("none.model")).error().code(), Code::kNotFound);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 3}) {
    const auto loaded = tokenizers::load_sentencepiece(write("cut.model", whole.substr(0, size)));
    ASSERT_FALSE(loaded.has_value()) << size;
    EXPECT_EQ(loaded.error().code(), Code::kDataLoss);
    EXPECT_THAT(loaded.error().message(), HasSubstr("cut.model"));
  }
}

TEST_F(SentencePiece, AnIdOutsideTheVocabularyIsNotDecoded) {
  const auto tokenizer = train(400);
  const std::vector<std::uint32_t> ids{400};
  EXPECT_EQ(tokenizer->decode(ids).error().code(), Code::kInvalidArgument);
}

TEST_F(SentencePiece, TooLittleTextForTheVocabularyIsRefused) {
  write("corpus/a.txt", "hardly any text");
  TrainingOptions options;
  options.vocab_size = 3000;
  const auto trained = train_sentencepiece({path("corpus")}, options);
  ASSERT_FALSE(trained.has_value());
  EXPECT_EQ(trained.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(trained.error().message(), HasSubstr("--vocab-size"));
  options.vocab_size = 100;
  EXPECT_EQ(train_sentencepiece({path("corpus")}, options).error().code(), Code::kInvalidArgument);
}

// ---- the program ----

class Program : public SentencePiece {
 protected:
  struct Outcome {
    int code = -1;
    std::string out;
    std::string err;
  };

  Outcome run(const std::string& arguments) const {
    const std::string command = std::string(TAILOR_BIN_DIR "/tailor-tokenize ") + arguments + " >" +
                                path("out.txt") + " 2>" + path("err.txt") + " </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content_of(path("out.txt")),
            content_of(path("err.txt"))};
  }
};

TEST_F(Program, TrainsEncodesAndDecodesBackToTheSameBytes) {
  write_corpus();
  for (const std::string& text : difficult_texts()) {
    write("corpus/" + sha256_hex(text).substr(0, 8) + ".txt", text);
  }
  const Outcome trained =
      run("train --input " + path("corpus") + " --vocab-size 600 --model " + path("m") + " --json");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(nlohmann::json::parse(trained.out)["vocab_size"], 600);
  for (const std::string& model : {path("m"), std::string("bytes")}) {
    const Outcome encoded = run("prepare " + path("corpus") + " --tokenizer " + model + " --out " +
                                path("d") + " --validation-fraction 0 --overwrite --json");
    ASSERT_EQ(encoded.code, 0) << encoded.err;
    const auto summary = nlohmann::json::parse(encoded.out);
    EXPECT_EQ(summary["vocab_size"], model == "bytes" ? 257 : 600);
    // The empty one is not counted.
    EXPECT_EQ(summary["documents"], 60 + difficult_texts().size() - 1);
    EXPECT_EQ(summary["empty_documents"], 1);
    const auto dataset = Dataset::open_glob(path("d/train-*.tokens"), {});
    ASSERT_TRUE(dataset.has_value());
    EXPECT_EQ(summary["tokens"], dataset->token_count());
    EXPECT_EQ(summary["train"]["data_hash"], dataset->content_hash());
    EXPECT_EQ(summary["train"]["files"][0]["path"], path("d/train-00000.tokens"));
    EXPECT_EQ(summary["bytes"], dataset->text_bytes());

    std::string expected;
    const auto listing = list_corpus({path("corpus")});
    for (const CorpusFile& file : listing->files) expected += content_of(file.path);
    EXPECT_EQ(expected.size(), dataset->text_bytes());
    const Outcome decoded = run("decode " + path("d/train-00000.tokens") + " --model " + model);
    ASSERT_EQ(decoded.code, 0) << decoded.err;
    EXPECT_TRUE(decoded.out == expected);
  }
}

TEST_F(Program, ShowPrintsTheHeaderAndVerifyFindsDamage) {
  const TokenShardInfo written = write_shard(path("a.tokens"), {1, 2, 3});
  const Outcome good = run("show --json " + path("a.tokens"));
  ASSERT_EQ(good.code, 0) << good.err;
  const auto info = nlohmann::json::parse(good.out).at(0);
  EXPECT_EQ(info["tokens"], 3);
  EXPECT_EQ(info["max_id"], 3);
  EXPECT_EQ(info["sha256"], written.sha256);
  EXPECT_EQ(info["first"]["ids"], (std::vector<int>{1, 2, 3}));
  EXPECT_THAT(run("verify " + path("a.tokens")).out, HasSubstr("every SHA-256 is right"));
  std::string altered = content_of(path("a.tokens"));
  altered[130] = 7;
  write("a.tokens", altered);
  const Outcome bad = run("verify --json " + path("a.tokens"));
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr(path("a.tokens")));
  EXPECT_EQ(nlohmann::json::parse(bad.out)[0]["ok"], false);
}

TEST_F(Program, ShowDecodesTheFirstTokensOfADataSet) {
  write("c/a.txt", "größe\n");
  ASSERT_EQ(
      run("prepare " + path("c") + " --tokenizer bytes --validation-fraction 0 --out " + path("d"))
          .code,
      0);
  const Outcome shown = run("show " + path("d"));
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("first text  größe\\n"));
  EXPECT_THAT(shown.out, HasSubstr("1 files"));
  const auto json = nlohmann::json::parse(run("show --json --tokens 4 " + path("d")).out)[0];
  EXPECT_EQ(json["train"]["documents"], 1);
  EXPECT_EQ(json["first"]["ids"].size(), 4u);
  EXPECT_EQ(json["sources"][0]["name"], "a.txt");
  EXPECT_EQ(run("show " + path("c")).code, 3);
}

TEST_F(Program, ExitCodesSayWhatWentWrong) {
  const std::string to = " --tokenizer bytes --validation-fraction 0 --out ";
  EXPECT_EQ(run("prepare " + path("none") + to + path("d")).code, 3);
  EXPECT_EQ(run("show " + path("none.tokens")).code, 3);
  EXPECT_EQ(run("verify " + path("none.tokens")).code, 3);
  const Outcome empty = run("prepare " + write("empty.txt", "") + to + path("d"));
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("empty.txt"));
  const Outcome bad = run("prepare " + write("latin.txt", "a\ncaf\xe9") + to + path("d"));
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("latin.txt is not UTF-8: wrong byte at offset 5 (line 2)"));
  const Outcome cut =
      run("prepare " + write("cut.txt.gz", gzip("some text").substr(0, 15)) + to + path("d"));
  EXPECT_EQ(cut.code, 2);
  EXPECT_THAT(cut.err, HasSubstr("cut.txt.gz is cut short"));
  EXPECT_EQ(run("prepare " + write("good.txt", "good") + to + path("d")).code, 0);
  // The same: nothing to do.
  EXPECT_EQ(run("prepare " + path("good.txt") + to + path("d")).code, 0);
  EXPECT_EQ(run("prepare " + path("good.txt") + to + path("d") + " --text-key x").code, 7);
  const Outcome skipped = run("prepare --skip-bad --overwrite --json " + path("latin.txt") + " " +
                              path("good.txt") + to + path("d"));
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_EQ(nlohmann::json::parse(skipped.out)["skipped_files"], 1);
  EXPECT_THAT(skipped.err, HasSubstr("latin.txt"));
}

TEST_F(Program, AFileSizeLimitIsAnErrorAndTheRunGoesOnAfterIt) {
  std::string text;
  while (text.size() < 3'000'000) text += "a line of text\n";
  write("big.txt", text);
  const std::string arguments =
      "prepare " + path("big.txt") + " --tokenizer bytes --validation-fraction 0 --out ";
  const std::string limited = "bash -c 'ulimit -f 2000; " TAILOR_BIN_DIR "/tailor-tokenize " +
                              arguments + path("d") + "' 2>" + path("err.txt");
  const int status = std::system(limited.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(content_of(path("err.txt")), HasSubstr("train-00000.tokens"));
  EXPECT_FALSE(std::filesystem::exists(path("d/dataset.json")));
  EXPECT_EQ(run(arguments + path("d")).code, 0);
  EXPECT_EQ(run(arguments + path("whole")).code, 0);
  EXPECT_TRUE(content_of(path("d/dataset.json")) == content_of(path("whole/dataset.json")));
}

TEST_F(Program, ImportsAndVerifies) {
  std::string bin;
  for (const int id : {5, 0, 6, 0}) bin += {static_cast<char>(id), '\0'};
  write("train.bin", bin);
  EXPECT_EQ(run("import " + path("train.bin") + " --out " + path("d")).code, 2);
  const Outcome done =
      run("import " + path("train.bin") + " --vocab-size 10 --eos 0 --json --out " + path("d"));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(nlohmann::json::parse(done.out)["documents"], 2);
  EXPECT_EQ(run("verify " + path("d")).code, 0);
  write("d/train-00000.tokens", "cut");
  EXPECT_EQ(run("verify " + path("d")).code, 2);
}

TEST_F(Program, WhatWasFoundOutOrPassedOverIsSaid) {
  const std::string inputs = std::string(TAILOR_TEST_DATA) + "/model/data/";
  const Outcome wide = run("import " + inputs + "llama3_uint32.bin --format nanogpt --json" +
                           " --vocab-size 128256 --eos 128001 --out " + path("wide"));
  ASSERT_EQ(wide.code, 0) << wide.err;
  EXPECT_THAT(wide.err, HasSubstr("read as ids of 4"));
  EXPECT_EQ(nlohmann::json::parse(wide.out)["tokens"], 2000);
  EXPECT_EQ(nlohmann::json::parse(wide.out)["documents"], 50);
  const Outcome no_eos = run("import " + inputs + "gpt2_uint16.bin --json --vocab-size 50257" +
                             " --eos 50255 --out " + path("no_eos"));
  EXPECT_EQ(no_eos.code, 0);
  EXPECT_THAT(no_eos.err, HasSubstr("warning: none of the 2000 train ids is the EOS 50255"));
  EXPECT_EQ(nlohmann::json::parse(no_eos.out)["warnings"].size(), 1u);

  write("c/a.txt", "text");
  write("c/b.txt", "");
  write("c/picture.png", "x");
  const std::string arguments = "prepare " + path("c") + " --tokenizer " +
                                std::string(TAILOR_TEST_DATA) + "/model/tokenizers/plain.model" +
                                " --validation-fraction 0 --json --out " + path("d");
  for (int round = 0; round < 2; ++round) {
    const Outcome prepared = run(arguments);
    ASSERT_EQ(prepared.code, 0) << prepared.err;
    EXPECT_THAT(prepared.err, HasSubstr("passed over: 1 .png (picture.png)"));
    EXPECT_THAT(prepared.err, HasSubstr("1 empty document (the first in b.txt)"));
    const auto json = nlohmann::json::parse(prepared.out);
    EXPECT_EQ(json["already_done"], round == 1);
    EXPECT_EQ(json["passed_over"][0]["kind"], ".png");
    EXPECT_EQ(json["tokenizer_files"][0], path("d/tokenizer.model"));
  }
  // The kept tokenizer is enough, and verify knows it.
  const auto shown = nlohmann::json::parse(run("show --json " + path("d")).out)[0];
  EXPECT_EQ(shown["first"]["text"], "text");
  EXPECT_EQ(run("verify " + path("d")).code, 0);
  write("d/tokenizer.model", "another");
  const Outcome altered = run("verify " + path("d"));
  EXPECT_EQ(altered.code, 2);
  EXPECT_THAT(altered.err, HasSubstr("tokenizer.model is not the tokenizer"));
}

TEST_F(Program, UsageErrorsNameTheNearestWord) {
  const Outcome option = run("prepare x --tokeniser bytes --out y");
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.err, HasSubstr("unknown option --tokeniser; did you mean --tokenizer?"));
  const Outcome command = run("prepar x");
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.err, HasSubstr("unknown command prepar; did you mean prepare?"));
  EXPECT_EQ(run("").code, 2);
  EXPECT_EQ(run("train --input x --vocab-size many --model y").code, 2);
  const Outcome help = run("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, StartsWith("Examples:"));
  EXPECT_THAT(run("prepare --help").out, StartsWith("Examples:\n  tailor-tokenize prepare"));
}

TEST_F(Program, LinksNeitherProtobufNorTorch) {
  const std::string libraries = path("libraries.txt");
  ASSERT_EQ(std::system(("ldd " TAILOR_BIN_DIR "/tailor-tokenize >" + libraries).c_str()), 0);
  const std::string text = content_of(libraries);
  EXPECT_THAT(text, HasSubstr("libsentencepiece"));
  EXPECT_THAT(text, Not(HasSubstr("protobuf")));
  EXPECT_THAT(text, Not(HasSubstr("torch")));
  EXPECT_THAT(text, Not(HasSubstr("grpc")));
}

}  // namespace
}  // namespace tailor::data
