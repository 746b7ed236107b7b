#include "model/data/corpus.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

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
    TAILOR_ASSIGN_OR_RETURN(CorpusListing listing, list_corpus(inputs));
    const std::vector<CorpusFile>& files = listing.files;
    passed_over_ = listing.passed_over;
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
  std::vector<PassedOver> passed_over_;
};

const std::string kInputs = std::string(TAILOR_TEST_DATA) + "/model/data/";

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
  write("c/b.jsonl", "\xEF\xBB\xBF{\"text\": \"" + std::string(900, 'x') +
                         "\"}\n\n{\"text\": \"\"}\nbad\n"
                         "{\"text\": \"z\"}");
  write("c/c.txt.gz", gzip("\xEF\xBB\xBF" + text));
  write("c/d.txt", "\xEF\xBB\xBF");
  options_.piece_bytes = 100;
  options_.skip_bad = true;
  const auto files = list_corpus({path("c")});
  ASSERT_TRUE(files.has_value());
  std::vector<CorpusPiece> whole;
  std::vector<CorpusFileSummary> ends;
  const auto read_from = [&](const CorpusPosition& start, std::vector<CorpusPiece>* pieces,
                             std::vector<CorpusFileSummary>* done) {
    const auto read = read_corpus(
        files->files, options_,
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

// As Python's codec utf-8-sig: the first mark of a file goes, whatever the file is compressed with.
TEST_F(Corpus, AByteOrderMarkAtTheBeginningOfAFileIsNoText) {
  const std::string mark = "\xEF\xBB\xBF";
  const std::string plain = content_of(kInputs + "plain.txt");
  ASSERT_EQ(content_of(kInputs + "bom.txt"), mark + plain);
  write("c/a.txt", mark + plain);
  write("c/b.md.gz", gzip(mark + plain) + gzip(mark + "joined"));
  write("c/c.rst.zst", zstd(mark + plain));
  write("c/d.jsonl", mark + "{\"text\": \"d\"}\n{\"text\": \"" + mark + "inside\"}\n");
  write("c/e.json.gz", gzip(mark + "\n{\"text\": \"\\ufeffescaped\"}"));
  write("c/f.txt", mark + mark + "two");
  write("c/g.txt", mark);
  write("c/h.jsonl.gz", gzip(mark));
  for (const std::uint64_t piece_bytes : {1u << 20, 16u}) {
    options_.piece_bytes = piece_bytes;
    const auto all = documents({path("c")});
    ASSERT_TRUE(all.has_value()) << all.error().to_string();
    EXPECT_EQ(*all, (Documents{{"a.txt", plain},
                               {"b.md.gz", plain + mark + "joined"},
                               {"c.rst.zst", plain},
                               {"d.jsonl:1", "d"},
                               {"d.jsonl:2", mark + "inside"},
                               {"e.json.gz:2", mark + "escaped"},
                               {"f.txt", mark + "two"}}));
    EXPECT_EQ(summary_.empty_documents, 1u);
  }
  const Status empty = failure({kInputs + "only_bom.txt"});
  EXPECT_EQ(empty.code(), Code::kInvalidArgument);
  EXPECT_NE(empty.message().find("holds no text"), std::string::npos) << empty.message();
  // Offsets are those of the file.
  const Status status = failure({write("bad.txt", mark + "ab\xFF")});
  EXPECT_NE(status.message().find("offset 5 (line 1)"), std::string::npos) << status.message();
  const Status joined =
      failure({write("j.jsonl", "{\"text\":\"a\"}\n" + mark + "{\"text\":\"b\"}")});
  EXPECT_NE(joined.message().find("line 2 (offset 13) begins with a byte order mark"),
            std::string::npos)
      << joined.message();
}

TEST_F(Corpus, TextInUtf16IsRefusedByNameOrPassedOver) {
  const auto utf16 = [](std::string_view ascii, std::string start) {
    for (const char c : ascii) start += {c, '\0'};
    return start;
  };
  write("c/good.txt", "good");
  write("c/marked.txt", utf16("Some text", "\xFF\xFE"));
  write("c/unmarked.txt.gz", gzip(utf16("Some text", "")));
  write("c/w.jsonl", utf16("{\"text\":\"a\"}\n", "\xFF\xFE"));
  for (const std::string name : {"marked.txt", "unmarked.txt.gz", "w.jsonl"}) {
    const Status status = failure({path("c/" + name)});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(name + " is UTF-16LE text"), std::string::npos)
        << status.message();
  }
  options_.skip_bad = true;
  EXPECT_EQ(*documents({path("c")}), (Documents{{"good.txt", "good"}}));
  EXPECT_EQ(summary_.skipped_files, 3u);
  EXPECT_EQ(summary_.skipped_lines, 0u);
}

TEST_F(Corpus, JsonLinesAndTextAreReadUnderAllTheirNames) {
  const std::string line = "{\"text\": \"x\"}\n";
  write("c/A.JSONL", line);
  write("c/b.ndjson", line);
  write("c/c.json", line);
  write("c/d.json.gz", gzip(line));
  write("c/e.ndjson.zst", zstd(line));
  write("c/f.Json.GZ", gzip(line));
  write("c/g.TXT", "x");
  write("c/h.markdown", "x");
  write("c/i.text", "x");
  write("c/j.Md.Zst", zstd("x"));
  write("c/.k.txt", "x");
  const auto all = documents({path("c")});
  ASSERT_TRUE(all.has_value()) << all.error().to_string();
  EXPECT_EQ(*all, (Documents{{".k.txt", "x"},
                             {"A.JSONL:1", "x"},
                             {"b.ndjson:1", "x"},
                             {"c.json:1", "x"},
                             {"d.json.gz:1", "x"},
                             {"e.ndjson.zst:1", "x"},
                             {"f.Json.GZ:1", "x"},
                             {"g.TXT", "x"},
                             {"h.markdown", "x"},
                             {"i.text", "x"},
                             {"j.Md.Zst", "x"}}));
  EXPECT_TRUE(passed_over_.empty());
}

TEST_F(Corpus, ADamagedFirstLineOfJsonLinesIsAnErrorAndNoOtherKindOfFile) {
  write("c/t.txt", "text");
  for (const std::string& first : {std::string("{\"text\":\"a\"}\0garbage", 20),
                                   std::string("{\"text\": \"x\"} {\"text\": 1}")}) {
    write("c/a.json", first + "\n{\"text\": \"b\"}\n");
    const auto all = documents({path("c")});
    ASSERT_FALSE(all.has_value());
    EXPECT_NE(all.error().message().find("a.json"), std::string::npos) << all.error().to_string();
  }
}

TEST_F(Corpus, WhatAFolderHoldsBesidesIsCountedByKind) {
  write("c/a.txt", "text");
  write("c/sub/one.PDF", "x");
  write("c/two.pdf", "x");
  write("c/three.pdf", "x");
  write("c/array.json", "[{\"text\": \"a\"},\n{\"text\": \"b\"}]");
  write("c/array.json.gz", gzip("\n [1]"));
  write("c/config.json", "{\n  \"text\": \"a\"\n}\n");
  write("c/LICENSE", "x");
  write("c/t.csv.gz", "x");
  write("c/t.txt.xz", "x");
  std::filesystem::create_symlink("nowhere.txt", path("c/dangling.txt"));
  std::filesystem::create_directory_symlink(".", path("c/loop"));
  std::filesystem::create_symlink("turn.txt", path("c/turn.txt"));
  ASSERT_EQ(::mkfifo(path("c/pipe.txt").c_str(), 0600), 0);
  write("c/own/x.txt", "of the data set");
  const auto listing = list_corpus({path("c")}, path("c/own"));
  ASSERT_TRUE(listing.has_value()) << listing.error().to_string();
  ASSERT_EQ(listing->files.size(), 1u);
  EXPECT_EQ(listing->passed_over,
            (std::vector<PassedOver>{{".pdf", 3, "sub/one.PDF"},
                                     {".json that is one array", 2, "array.json"},
                                     {"link that leads nowhere", 2, "dangling.txt"},
                                     {".csv.gz", 1, "t.csv.gz"},
                                     {".json that is no object a line", 1, "config.json"},
                                     {".txt.xz", 1, "t.txt.xz"},
                                     {"folder of the data set itself", 1, "own"},
                                     {"link to a folder", 1, "loop"},
                                     {"no extension", 1, "LICENSE"},
                                     {"pipe, socket or device", 1, "pipe.txt"}}));
  EXPECT_EQ(describe_passed_over({{".pdf", 3, "a.pdf"}, {"no extension", 1, "LICENSE"}}),
            "3 .pdf (the first is a.pdf), 1 no extension (LICENSE)");
  std::filesystem::remove(path("c/a.txt"));
  std::filesystem::remove_all(path("c/own"));
  const Status nothing = failure({path("c")});
  EXPECT_EQ(nothing.code(), Code::kInvalidArgument);
  EXPECT_NE(nothing.message().find("it holds 3 .pdf"), std::string::npos) << nothing.message();
}

TEST_F(Corpus, OfVeryManyKindsTheRestIsOne) {
  write("c/a.txt", "x");
  for (int i = 10; i < 50; ++i) write("c/f." + std::to_string(i), "x");
  write("c/g.49", "x");
  ASSERT_TRUE(documents({path("c")}).has_value());
  ASSERT_EQ(passed_over_.size(), 20u);
  EXPECT_EQ(passed_over_[0], (PassedOver{".49", 2, "f.49"}));
  EXPECT_EQ(passed_over_[19], (PassedOver{"other kinds", 21, "f.28"}));
}

TEST_F(Corpus, AJsonArrayIsRefusedByName) {
  for (const std::string name : {"a.jsonl", "a.json", "a.ndjson"}) {
    const Status status = failure({write(name, "\n[{\"text\": \"a\"}]\n")});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(name + " is one JSON array"), std::string::npos)
        << status.message();
  }
}

TEST_F(Corpus, ZstdIsDecodedUpToTwoGibibytesOfWindow) {
  const auto plain = documents({kInputs + "plain.jsonl"});
  const auto wide = documents({kInputs + "long28.jsonl.zst"});
  ASSERT_TRUE(plain.has_value() && wide.has_value()) << wide.error().to_string();
  ASSERT_EQ(plain->size(), 6u);
  ASSERT_EQ(wide->size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ((*wide)[i].second, (*plain)[i].second);

  options_.zstd_window_log = 27;
  const Status limited = failure({kInputs + "long28.jsonl.zst"});
  EXPECT_EQ(limited.code(), Code::kUnimplemented);
  EXPECT_NE(limited.message().find("a window of 256 MiB, and at most 128 MiB"), std::string::npos)
      << limited.message();
  options_.zstd_window_log = kZstdWindowLogMax;
  // Its header asks for 2.25 GiB: exponent 21, mantissa 1 (RFC 8878, 3.1.1.1.2).
  std::string wider = content_of(kInputs + "long28.jsonl.zst");
  wider[5] = static_cast<char>(21 << 3 | 1);
  const Status refused = failure({write("w.jsonl.zst", wider)});
  EXPECT_EQ(refused.code(), Code::kUnimplemented);
  EXPECT_NE(refused.message().find("a window of 2304 MiB, and at most 2 GiB"), std::string::npos)
      << refused.message();
  EXPECT_EQ(refused.message().find("damaged"), std::string::npos);
  options_.skip_bad = true;
  write("c/w.jsonl.zst", wider);
  write("c/a.txt", "a");
  EXPECT_EQ(*documents({path("c")}), (Documents{{"a.txt", "a"}}));
}

TEST_F(Corpus, WhatIsWrongWithCompressedDataIsNamed) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i * i) + "\n";
  std::string checked(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  checked.resize(ZSTD_compress2(context, checked.data(), checked.size(), text.data(), text.size()));
  // The id of a dictionary, put into the header of a frame that was made without one.
  std::string with_dictionary = checked;
  with_dictionary[4] = static_cast<char>(with_dictionary[4] | 1);  // one byte of id
  const bool single_segment = (with_dictionary[4] & 0x20) != 0;
  with_dictionary.insert(with_dictionary.begin() + (single_segment ? 5 : 6), 77);
  ZSTD_freeCCtx(context);
  const std::string skippable("\x50\x2A\x4D\x18\x03\0\0\0abc", 11);
  std::string altered = checked;
  altered.back() = static_cast<char>(altered.back() ^ 1);
  const struct {
    std::string name, content;
    Code code;
    const char* message;
  } cases[] = {
      {"a.txt.zst", altered, Code::kDataLoss, "checksum does not match"},
      {"b.txt.zst", checked + "garbage!", Code::kDataLoss,
       "followed by something else (after 1 whole frame)"},
      {"c.txt.zst", checked + checked + std::string(8, '\0'), Code::kDataLoss, "2 whole frames"},
      {"d.txt.zst", with_dictionary, Code::kUnimplemented, "a dictionary (id 77)"},
      {"e.txt.gz", gzip(text) + "garbage", Code::kDataLoss,
       "followed by something else (after 1 whole member)"},
      {"f.txt", gzip(text), Code::kInvalidArgument, "f.txt is gzip data"},
      {"g.txt", checked, Code::kInvalidArgument, "g.txt is zstd data"},
  };
  for (const auto& wrong : cases) {
    const Status status = failure({write(wrong.name, wrong.content)});
    EXPECT_EQ(status.code(), wrong.code) << status.to_string();
    EXPECT_NE(status.message().find(wrong.message), std::string::npos) << status.message();
  }
  EXPECT_EQ(*documents({write("h.txt.zst", skippable + checked + skippable)}),
            (Documents{{"h.txt.zst", text}}));
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
      read_corpus(list_corpus({path("a.txt"), path("b.txt")})->files, {}, [&](CorpusPiece&&) {
        ++calls;
        return Status(Code::kResourceExhausted, "full");
      });
  EXPECT_EQ(result.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tailor::data
