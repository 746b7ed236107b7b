#include "model/data/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

using Documents = std::vector<std::pair<std::string, std::string>>;

class Corpus : public TemporaryFolder {
 protected:
  /// All documents of `inputs`, pieces joined.
  Result<Documents> documents(const std::vector<std::string>& inputs) {
    TAILOR_ASSIGN_OR_RETURN(const std::vector<CorpusFile> files, list_corpus(inputs));
    Documents all;
    bool open = false;
    TAILOR_ASSIGN_OR_RETURN(summary_, read_corpus(files, options_, [&](CorpusPiece&& piece) {
                              if (!open) all.emplace_back(piece.document, "");
                              EXPECT_EQ(all.back().first, piece.document);
                              all.back().second += piece.text;
                              open = !piece.ends_document;
                              return Status::ok();
                            }));
    EXPECT_FALSE(open);
    return all;
  }
  Status failure(const std::vector<std::string>& inputs) { return status_of(documents(inputs)); }

  CorpusOptions options_;
  CorpusSummary summary_;
};

TEST_F(Corpus, AFolderIsReadInTheByteOrderOfItsNames) {
  write("c/b.txt", "two");
  write("c/a/z.rst", "one");
  write("c/Z.md", "zero");
  write("c/a.txt", "after a/ ('.' < '/')");
  write("c/picture.png", "\xff\xd8");
  write("c/b.txt.gz", gzip("three"));
  write("c/b.txt.zst", zstd("four"));
  write("c/d.jsonl", "{\"text\": \"five\"}\n\n{\"text\": \"six\", \"id\": 4}");
  const auto all = documents({path("c")});
  ASSERT_TRUE(all.has_value()) << all.error().to_string();
  EXPECT_EQ(*all, (Documents{{"Z.md", "zero"},
                             {"a.txt", "after a/ ('.' < '/')"},
                             {"a/z.rst", "one"},
                             {"b.txt", "two"},
                             {"b.txt.gz", "three"},
                             {"b.txt.zst", "four"},
                             {"d.jsonl:1", "five"},
                             {"d.jsonl:3", "six"}}));
  EXPECT_EQ(summary_.files, 7u);
  EXPECT_EQ(summary_.documents, 8u);
}

TEST_F(Corpus, LongDocumentsComeInPiecesOfWholeLinesAndWholeCharacters) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "line " + std::to_string(i) + " äß𝄞\n";
  const std::string no_newline = text + std::string(50, 'x') + "€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€";
  write("a.txt", no_newline);
  for (const std::uint64_t piece_bytes : {16, 17, 18, 19, 100, 1000, 1'000'000}) {
    options_.piece_bytes = piece_bytes;
    const auto all = documents({path("a.txt")});
    ASSERT_TRUE(all.has_value()) << piece_bytes << all.error().to_string();
    EXPECT_EQ(*all, (Documents{{"a.txt", no_newline}}));
    EXPECT_EQ(summary_.bytes, no_newline.size());
  }
}

TEST_F(Corpus, SeveralGzipMembersAreOneText) {
  write("a.txt.gz", gzip("one ") + gzip("") + gzip("two") + std::string(512, '\0'));
  write("b.txt.zst", zstd("one ") + zstd("two"));
  const auto all = documents({path("a.txt.gz"), path("b.txt.zst")});
  ASSERT_TRUE(all.has_value()) << all.error().to_string();
  EXPECT_EQ(*all, (Documents{{"a.txt.gz", "one two"}, {"b.txt.zst", "one two"}}));
}

TEST_F(Corpus, CompressedFilesCutAnywhereAreDataLossThatNamesThem) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "line " + std::to_string(i * i) + "\n";
  for (const bool use_gzip : {true, false}) {
    const std::string whole = use_gzip ? gzip(text) : zstd(text);
    const std::string name = use_gzip ? "cut.txt.gz" : "cut.txt.zst";
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const std::string file = write(name, whole.substr(0, size));
      const Status status = failure({file});
      ASSERT_EQ(status.code(), Code::kDataLoss) << name << " at " << size << status.to_string();
      ASSERT_NE(status.message().find(file), std::string::npos);
    }
  }
}

TEST_F(Corpus, AlteredGzipIsDataLoss) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i) + "\n";
  std::string altered = gzip(text);
  altered[altered.size() / 2] = static_cast<char>(altered[altered.size() / 2] ^ 0x10);
  EXPECT_EQ(failure({write("a.txt.gz", altered)}).code(), Code::kDataLoss);
  EXPECT_EQ(failure({write("b.txt.gz", "plain text under a wrong name")}).code(), Code::kDataLoss);
  EXPECT_EQ(failure({write("c.txt.zst", "plain text under a wrong name")}).code(), Code::kDataLoss);
  EXPECT_EQ(failure({write("d.txt.gz", gzip(text) + "garbage")}).code(), Code::kDataLoss);
}

TEST_F(Corpus, TextThatIsNotUtf8NamesTheFileAndTheByte) {
  const std::string file = write("latin1.txt", std::string(100, 'a') + "caf\xe9 au lait");
  for (const std::uint64_t piece_bytes : {1'000'000, 20}) {
    options_.piece_bytes = piece_bytes;
    const Status status = failure({file});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(file), std::string::npos);
    EXPECT_NE(status.message().find("offset 103"), std::string::npos) << status.message();
  }
  const std::string lines = write("latin1.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\xe9\"}\n");
  const Status status = failure({lines});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("offset 22 (line 2)"), std::string::npos) << status.message();
}

TEST_F(Corpus, SkipBadCountsBadFilesAndLinesAndGivesNothingOfThem) {
  write("c/a.txt", "good");
  write("c/b.txt", std::string(1000, 'a') + "\n\xff");
  write("c/c.txt.gz", gzip(std::string(1000, 'b')).substr(0, 20));
  write("c/d.jsonl", "{\"text\": \"kept\"}\nnot json\n{\"text\": \"\xff\"}\n{\"text\": \"\xc3");
  write("c/e.txt", "also good");
  write("c/f.jsonl.gz", gzip("{\"text\": \"lost with its file\"}\n").substr(0, 30));
  options_.skip_bad = true;
  options_.piece_bytes = 100;
  const auto all = documents({path("c")});
  ASSERT_TRUE(all.has_value()) << all.error().to_string();
  EXPECT_EQ(*all, (Documents{{"a.txt", "good"}, {"d.jsonl:1", "kept"}, {"e.txt", "also good"}}));
  EXPECT_EQ(summary_.skipped_files, 3u);
  EXPECT_EQ(summary_.skipped_lines, 3u);
  ASSERT_EQ(summary_.reasons.size(), 6u);
  EXPECT_NE(summary_.reasons[0].message().find("b.txt"), std::string::npos);
}

TEST_F(Corpus, BadJsonLinesNameFileAndLine) {
  for (const char* line :
       {"{\"text\": ", "[1]", "{\"body\": \"x\"}", "{\"text\": 5}", "{\"text\": \"\\ud800\"}"}) {
    const std::string file = write("a.jsonl", std::string("{\"text\": \"x\"}\n") + line + "\n");
    const Status status = failure({file});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << line;
    EXPECT_NE(status.message().find(file + ": line 2"), std::string::npos) << status.message();
  }
}

TEST_F(Corpus, LinesLongerThanAPieceComeInPiecesAndAreWhole) {
  std::string long_text;
  for (int i = 0; long_text.size() < 3'000'000; ++i) long_text += "w" + std::to_string(i) + " ";
  write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"" + long_text +
                       "\", \"n\": [1, {\"text\": 2}]}\n{\"text\": \"b\"}");
  for (const std::uint64_t piece_bytes : {1000, 100'000, 10'000'000}) {
    options_.piece_bytes = piece_bytes;
    const auto all = documents({path("a.jsonl")});
    ASSERT_TRUE(all.has_value()) << all.error().to_string();
    EXPECT_EQ(*all, (Documents{{"a.jsonl:1", "a"}, {"a.jsonl:2", long_text}, {"a.jsonl:3", "b"}}));
  }
}

TEST_F(Corpus, AnotherKeyMayHoldTheText) {
  write("a.jsonl", "{\"text\": 5, \"content\": \"yes\"}\n");
  options_.text_key = "content";
  EXPECT_EQ(*documents({path("a.jsonl")}), (Documents{{"a.jsonl:1", "yes"}}));
  options_.text_key = "body";
  const Status missing = failure({path("a.jsonl")});
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
  EXPECT_NE(missing.message().find("a string \"body\""), std::string::npos) << missing.message();
}

TEST_F(Corpus, ReadingGoesOnAtEveryPieceAsIfItHadNotStopped) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i) + " äß𝄞\n";
  write("c/a.txt", text);
  write("c/b.jsonl", "{\"text\": \"" + std::string(900, 'x') +
                         "\"}\n\n{\"text\": \"\"}\nbad\n"
                         "{\"text\": \"z\"}");
  write("c/c.txt.gz", gzip(text));
  write("c/d.txt", "");
  options_.piece_bytes = 100;
  options_.skip_bad = true;
  const auto files = list_corpus({path("c")});
  ASSERT_TRUE(files.has_value());
  std::vector<CorpusPiece> whole;
  std::vector<CorpusFileSummary> ends;
  const auto read_from = [&](const CorpusPosition& start, std::vector<CorpusPiece>* pieces,
                             std::vector<CorpusFileSummary>* done) {
    const auto read = read_corpus(
        *files, options_,
        [&](CorpusPiece&& piece) {
          pieces->push_back(std::move(piece));
          return Status::ok();
        },
        start,
        [&](CorpusFileSummary&& end) {
          done->push_back(std::move(end));
          return Status::ok();
        });
    EXPECT_TRUE(read.has_value()) << read.error().to_string();
  };
  read_from({}, &whole, &ends);
  ASSERT_EQ(ends.size(), 4u);
  EXPECT_EQ(ends[1].documents, 2u);
  EXPECT_EQ(ends[1].empty_documents, 1u);
  EXPECT_EQ(ends[1].skipped_lines, 1u);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<CorpusPiece> rest;
    std::vector<CorpusFileSummary> rest_ends;
    read_from(whole[i].next, &rest, &rest_ends);
    ASSERT_EQ(rest.size(), whole.size() - i - 1) << i;
    for (std::size_t j = 0; j < rest.size(); ++j) {
      ASSERT_EQ(rest[j].text, whole[i + 1 + j].text);
      ASSERT_EQ(rest[j].document, whole[i + 1 + j].document);
      ASSERT_EQ(rest[j].next, whole[i + 1 + j].next);
    }
    for (std::size_t j = 0; j < rest_ends.size(); ++j) {
      const CorpusFileSummary& end = ends[ends.size() - rest_ends.size() + j];
      ASSERT_EQ(rest_ends[j].sha256, end.sha256);
      ASSERT_EQ(rest_ends[j].documents, end.documents) << i;
      ASSERT_EQ(rest_ends[j].text_bytes, end.text_bytes);
    }
  }
}

TEST_F(Corpus, TheSameFileTwiceIsRefused) {
  const std::string file = write("c/a.txt", "text");
  for (const auto& inputs : {std::vector<std::string>{file, file},
                             std::vector<std::string>{path("c"), path("c/../c/a.txt")}}) {
    const Status status = failure(inputs);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("given twice"), std::string::npos) << status.message();
  }
}

TEST_F(Corpus, MissingEmptyAndUnknownAreTypedErrors) {
  EXPECT_EQ(failure({path("none")}).code(), Code::kNotFound);
  EXPECT_EQ(failure({path("none.txt")}).code(), Code::kNotFound);
  EXPECT_EQ(failure({}).code(), Code::kInvalidArgument);
  EXPECT_EQ(failure({write("a.bin", "x")}).code(), Code::kInvalidArgument);
  std::filesystem::create_directories(path("empty"));
  EXPECT_EQ(failure({path("empty")}).code(), Code::kInvalidArgument);
  const Status empty = failure({write("empty.txt", ""), write("empty.jsonl", "\n\n")});
  EXPECT_EQ(empty.code(), Code::kInvalidArgument);
  EXPECT_NE(empty.message().find("empty.txt"), std::string::npos);
}

TEST_F(Corpus, AFileThatMayNotBeReadIsNamed) {
  const std::string file = write("a.txt", "x");
  std::filesystem::permissions(file, std::filesystem::perms::none);
  if (::access(file.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  const Status status = failure({file});
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_NE(status.message().find(file), std::string::npos);
}

TEST_F(Corpus, AFailingSinkEndsTheReading) {
  write("a.txt", "x");
  write("b.txt", "y");
  int calls = 0;
  const auto result =
      read_corpus(*list_corpus({path("a.txt"), path("b.txt")}), {}, [&](CorpusPiece&&) {
        ++calls;
        return Status(Code::kResourceExhausted, "full");
      });
  EXPECT_EQ(result.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tailor::data
