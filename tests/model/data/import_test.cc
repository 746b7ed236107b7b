// Import of nanoGPT's and llm.c's files. What they hold is built here from their published formats.
#include "model/data/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/rng.h"
#include "model/data/dataset.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

template <typename Id>
std::string raw(const std::vector<std::uint32_t>& ids) {
  std::string bytes(ids.size() * sizeof(Id), '\0');
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Id id = static_cast<Id>(ids[i]);
    std::memcpy(bytes.data() + i * sizeof id, &id, sizeof id);
  }
  return bytes;
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count,
                 const std::string& ids) {
  std::string header(1024, '\0');
  const std::int32_t numbers[] = {magic, version, count};
  std::memcpy(header.data(), numbers, sizeof numbers);
  return header + ids;
}

class Import : public TemporaryFolder {
 protected:
  void SetUp() override {
    Rng rng(3);
    for (int i = 0; i < 5000; ++i) {
      ids_.push_back(i % 100 == 0 ? 50256 : static_cast<std::uint32_t>(rng.below(50256)));
    }
    options_.folder = path("d");
  }

  std::vector<std::uint32_t> imported(const std::string& split = "train") {
    const auto dataset = Dataset::open_glob(path("d/" + split + "-*.tokens"), {});
    EXPECT_TRUE(dataset.has_value()) << dataset.error().to_string();
    std::vector<std::uint32_t> ids(dataset->token_count());
    EXPECT_TRUE(dataset->read(0, ids).is_ok());
    return ids;
  }
  Status failure(const std::string& file) { return status_of(import_dataset({file}, options_)); }

  std::vector<std::uint32_t> ids_;
  ImportOptions options_;
};

TEST_F(Import, Gpt2FilesOfLlmCKeepTheirIds) {
  write("a.bin", llmc(20240520, 1, 5000, raw<std::uint16_t>(ids_)));
  write("v.bin", llmc(20240520, 1, 3, raw<std::uint16_t>({50256, 1, 2})));
  options_.validation_inputs = {path("v.bin")};
  const auto summary = import_dataset({path("a.bin")}, options_);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(imported(), ids_);
  EXPECT_EQ(imported("validation"), (std::vector<std::uint32_t>{50256, 1, 2}));
  EXPECT_EQ(summary->manifest.tokenizer.vocab_size, 50257u);
  EXPECT_EQ(summary->manifest.tokenizer.eos_id, 50256u);
  EXPECT_EQ(summary->manifest.splits[kTrain].documents(), 50u);
  EXPECT_TRUE(verify_dataset(path("d"))->empty());
  EXPECT_TRUE(import_dataset({path("a.bin")}, options_)->already_done);
}

TEST_F(Import, Llama3FilesOfLlmCHaveFourBytesAnId) {
  const std::vector<std::uint32_t> ids = {128000, 5, 128255, 70000, 128000, 1};
  write("a.bin", llmc(20240801, 7, 6, raw<std::uint32_t>(ids)));
  const auto summary = import_dataset({path("a.bin")}, options_);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(imported(), ids);
  EXPECT_EQ(summary->manifest.tokenizer.vocab_size, 128256u);
  EXPECT_EQ(summary->manifest.splits[kTrain].documents(), 2u);
}

TEST_F(Import, NanoGptFilesNeedVocabularyAndEos) {
  const std::string file = write("train.bin", raw<std::uint16_t>(ids_));
  const Status refused = failure(file);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("--vocab-size"), std::string::npos);
  options_.vocab_size = 50257;
  options_.eos_id = 50257;
  EXPECT_EQ(failure(file).code(), Code::kInvalidArgument);
  options_.eos_id = 50256;
  ASSERT_TRUE(import_dataset({file}, options_).has_value());
  EXPECT_EQ(imported(), ids_);
}

// 50 documents of 2,000 ids in all, made for this (tests/data/model/README.md).
TEST_F(Import, IdsOfFourBytesAreReadAsThatWhereTheVocabularySaysSo) {
  const std::string file = std::string(TAILOR_TEST_DATA) + "/model/data/llama3_uint32.bin";
  const std::string bytes = content_of(file);
  ids_.resize(bytes.size() / 4);
  std::memcpy(ids_.data(), bytes.data(), bytes.size());
  for (const BinFormat format : {BinFormat::kNanoGpt, BinFormat::kAuto}) {
    options_.format = format;
    options_.overwrite = true;
    options_.vocab_size = 128256;
    options_.eos_id = 128001;
    const auto summary = import_dataset({file}, options_);
    ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
    EXPECT_EQ(imported(), ids_);
    EXPECT_EQ(summary->manifest.splits[kTrain].tokens(), 2000u);
    EXPECT_EQ(summary->manifest.splits[kTrain].documents(), 50u);
    ASSERT_EQ(summary->notes.size(), 1u);
    EXPECT_NE(summary->notes[0].find("read as ids of 4"), std::string::npos);
    EXPECT_TRUE(summary->manifest.warnings.empty());
    EXPECT_EQ(summary->manifest.settings.at("id_bytes"), "4");
  }
  options_.folder = path("e");
  options_.id_bytes = 2;
  EXPECT_NE(failure(file).message().find("--id-bytes 4"), std::string::npos);
  options_.id_bytes = 3;
  EXPECT_EQ(failure(file).code(), Code::kInvalidArgument);
  // A vocabulary of 16 bits does not make them ids of 16 bits.
  options_.id_bytes = 0;
  options_.vocab_size = 50257;
  options_.eos_id = 50256;
  const Status small = failure(file);
  EXPECT_NE(small.message().find("token 0 is id 66204, outside the vocabulary of 50257"),
            std::string::npos)
      << small.message();
}

TEST_F(Import, BytesThatCanOnlyBeIdsOfAnotherWidthAreNotBelievedToBeThisOne) {
  options_.vocab_size = 50257;
  options_.eos_id = 50256;
  std::replace(ids_.begin(), ids_.end(), 20676u, 7u);  // EOS with its bytes turned round
  const auto found = import_dataset({write("a.bin", raw<std::uint32_t>(ids_))}, options_);
  ASSERT_TRUE(found.has_value()) << found.error().to_string();
  EXPECT_EQ(imported(), ids_);
  EXPECT_EQ(found->manifest.splits[kTrain].documents(), 50u);
  ASSERT_EQ(found->notes.size(), 1u);
  options_.folder = path("e");
  EXPECT_EQ(failure(write("b.bin", raw<std::uint64_t>(ids_))).code(), Code::kUnimplemented);
  options_.validation_inputs = {write("v.bin", raw<std::uint16_t>(ids_))};
  EXPECT_NE(failure(path("a.bin")).message().find("import them apart"), std::string::npos);
  options_.validation_inputs = {};
  // Told otherwise: kept as told, and said.
  options_.id_bytes = 2;
  const auto insisted = import_dataset({path("a.bin")}, options_);
  ASSERT_TRUE(insisted.has_value()) << insisted.error().to_string();
  EXPECT_EQ(insisted->manifest.splits[kTrain].tokens(), 10000u);
  EXPECT_EQ(insisted->notes.size(), 1u);
  // And ids of 2 bytes read as 4 do not fit, nor do those of the other byte order.
  options_.folder = path("f");
  options_.id_bytes = 4;
  const Status wider = failure(path("v.bin"));
  EXPECT_NE(wider.message().find("16-bit ids (--id-bytes 2)"), std::string::npos)
      << wider.message();
  options_.id_bytes = 0;
  std::string swapped = raw<std::uint16_t>(ids_);
  for (std::size_t i = 0; i < swapped.size(); i += 2) std::swap(swapped[i], swapped[i + 1]);
  const Status turned = failure(write("s.bin", swapped));
  EXPECT_NE(turned.message().find("16-bit big-endian ids"), std::string::npos) << turned.message();
  options_.vocab_size = 65536;
  const auto all_fit = import_dataset({path("s.bin")}, options_);
  ASSERT_TRUE(all_fit.has_value());
  ASSERT_EQ(all_fit->manifest.warnings.size(), 1u);
  EXPECT_NE(all_fit->manifest.warnings[0].find("is the file big-endian?"), std::string::npos);
}

TEST_F(Import, IdsWithoutEosAreAWarningOfTheManifest) {
  options_.vocab_size = 50257;
  options_.eos_id = 50255;
  std::erase(ids_, 50255u);
  options_.validation_inputs = {write("v.bin", raw<std::uint16_t>({1, 2, 3}))};
  const auto summary = import_dataset({write("a.bin", raw<std::uint16_t>(ids_))}, options_);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  ASSERT_EQ(summary->manifest.warnings.size(), 2u);
  EXPECT_NE(summary->manifest.warnings[1].find("none of the 3 validation ids is the EOS 50255"),
            std::string::npos);
  EXPECT_EQ(load_manifest(path("d"))->warnings, summary->manifest.warnings);
  EXPECT_TRUE(verify_dataset(path("d"))->empty());
  EXPECT_EQ(import_dataset({path("a.bin")}, options_)->manifest.warnings.size(), 2u);
  // llm.c's own mark is named.
  options_ = {};
  options_.folder = path("l");
  options_.eos_id = 11;
  write("l.bin", llmc(20240520, 1, 3, raw<std::uint16_t>({50256, 1, 2})));
  EXPECT_NE(import_dataset({path("l.bin")}, options_)->manifest.warnings[0].find("--eos 50256"),
            std::string::npos);
}

TEST_F(Import, FilesThatSayThatTheyAreSomethingElseAreNoIds) {
  options_.vocab_size = 50257;
  options_.eos_id = 50256;
  const std::string good = llmc(20240520, 1, 5000, raw<std::uint16_t>(ids_));
  std::string big_endian = good;
  for (std::size_t i = 0; i < 1024; i += 4) {
    std::reverse(big_endian.begin() + static_cast<std::ptrdiff_t>(i),
                 big_endian.begin() + static_cast<std::ptrdiff_t>(i + 4));
  }
  write_shard(path("s.tokens"), {1, 2, 3});
  const struct {
    std::string name, content;
    BinFormat format;
    Code code;
    const char* message;
  } cases[] = {
      {"a.bin", good, BinFormat::kNanoGpt, Code::kInvalidArgument, "count as 512 ids"},
      {"b.bin", big_endian, BinFormat::kAuto, Code::kUnimplemented, "big-endian file of llm.c"},
      {"c.bin", llmc(20240522, 1, 3, "abcdef"), BinFormat::kAuto, Code::kUnimplemented, "20240522"},
      {"d.bin", "\x93NUMPY version 1 {'descr': '<u2'", BinFormat::kAuto, Code::kInvalidArgument,
       "an array of numpy"},
      {"e.bin", gzip(raw<std::uint16_t>(ids_)), BinFormat::kAuto, Code::kInvalidArgument,
       "gzip data"},
      {"f.bin", zstd(raw<std::uint16_t>(ids_)), BinFormat::kAuto, Code::kInvalidArgument,
       "zstd data"},
      {"g.bin", "PK\x03\x04 an archive", BinFormat::kNanoGpt, Code::kInvalidArgument,
       "zip archive"},
      {"h.bin", content_of(path("s.tokens")), BinFormat::kAuto, Code::kInvalidArgument,
       "a token shard"},
  };
  for (const auto& wrong : cases) {
    options_.format = wrong.format;
    const Status status = failure(write(wrong.name, wrong.content));
    EXPECT_EQ(status.code(), wrong.code) << status.to_string();
    EXPECT_NE(status.message().find(wrong.message), std::string::npos) << status.message();
  }
  // The header's width against what is said.
  options_.format = BinFormat::kAuto;
  options_.vocab_size = 128256;
  EXPECT_NE(failure(write("a.bin", good)).message().find("have 2 bytes"), std::string::npos);
  options_.vocab_size = 0;
  options_.id_bytes = 4;
  EXPECT_EQ(failure(path("a.bin")).code(), Code::kInvalidArgument);
}

TEST_F(Import, WhatFailedAtOnceIsInNobodysWay) {
  const std::string file = write("train.bin", raw<std::uint16_t>(ids_));
  options_.vocab_size = 100;
  options_.eos_id = 0;
  EXPECT_EQ(failure(file).code(), Code::kInvalidArgument);
  options_.vocab_size = 50257;
  options_.eos_id = 50256;
  EXPECT_TRUE(import_dataset({file}, options_).has_value());
}

TEST_F(Import, AnIdOutsideTheVocabularyNamesFileAndPosition) {
  ids_[4321] = 50300;
  const std::string file = write("train.bin", llmc(20240520, 1, 5000, raw<std::uint16_t>(ids_)));
  const Status status = failure(file);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(file + ": token 4321 is id 50300"), std::string::npos)
      << status.message();
}

TEST_F(Import, FilesCutAnywhereOrGrownAreDataLossThatNamesThem) {
  const std::string whole =
      llmc(20240520, 1, 50, raw<std::uint16_t>({ids_.begin(), ids_.begin() + 50}));
  for (std::size_t size = 12; size <= whole.size() + 2; ++size) {
    if (size == whole.size()) continue;
    const std::string file = write("a.bin", (whole + "xx").substr(0, size));
    const Status status = status_of(BinFile::open(file));
    ASSERT_EQ(status.code(), Code::kDataLoss) << size << status.to_string();
    ASSERT_NE(status.message().find(file), std::string::npos);
  }
  EXPECT_EQ(status_of(BinFile::open(write("odd.bin", "123"))).code(), Code::kDataLoss);
  EXPECT_EQ(status_of(BinFile::open(write("empty.bin", ""))).code(), Code::kInvalidArgument);
  EXPECT_EQ(status_of(BinFile::open(path("none.bin"))).code(), Code::kNotFound);
  EXPECT_EQ(status_of(BinFile::open(path("."))).code(), Code::kInvalidArgument);
  const std::string next = write("next.bin", llmc(20240520, 2, 1, "ab"));
  EXPECT_EQ(status_of(BinFile::open(next)).code(), Code::kUnimplemented);
  const std::string negative = write("negative.bin", llmc(20240520, 1, -1, "ab"));
  EXPECT_EQ(status_of(BinFile::open(negative)).code(), Code::kDataLoss);
  const std::string other = write("other.bin", "twelve bytes");
  EXPECT_EQ(status_of(BinFile::open(other, BinFormat::kLlmC)).code(), Code::kDataLoss);
}

TEST_F(Import, FilesOfDifferentKindsAndTheSameFileTwiceAreRefused) {
  write("a.bin", llmc(20240520, 1, 2, raw<std::uint16_t>({1, 2})));
  write("b.bin", llmc(20240801, 7, 2, raw<std::uint32_t>({1, 2})));
  EXPECT_EQ(status_of(import_dataset({path("a.bin"), path("b.bin")}, options_)).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(status_of(import_dataset({path("a.bin"), path("../x/../a.bin")}, options_)).code(),
            Code::kNotFound);
  EXPECT_EQ(status_of(import_dataset({path("a.bin"), path("./a.bin")}, options_)).code(),
            Code::kInvalidArgument);
}

TEST_F(Import, ATokenizerCountsTheBytesOfText) {
  write("a.bin", raw<std::uint16_t>({'a', 'b', 256, 'c', 256}));
  const auto bytes = tokenizers::make_byte_tokenizer();
  options_.tokenizer = bytes.get();
  options_.tokenizer_name = "bytes";
  const auto summary = import_dataset({path("a.bin")}, options_);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(summary->manifest.splits[kTrain].text_bytes(), 3u);
  EXPECT_EQ(summary->manifest.splits[kTrain].documents(), 2u);
  EXPECT_EQ(summary->manifest.tokenizer.sha256, bytes->sha256());
}

TEST_F(Import, AFailedImportGoesOnWithTheSameBytes) {
  std::vector<std::uint32_t> many(3'000'000, 7);
  for (std::size_t i = 0; i < many.size(); i += 999) many[i] = 50256;
  const std::string good = raw<std::uint16_t>(many);
  many[2'900'000] = 60000;
  options_.vocab_size = 50257;
  options_.eos_id = 50256;
  options_.shard_tokens = 1'500'000;
  options_.save_every_s = 0;
  const std::string file = write("a.bin", raw<std::uint16_t>(many));
  const auto stamp = std::filesystem::last_write_time(file);
  EXPECT_EQ(failure(file).code(), Code::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::exists(path("d/prepare.journal")));
  write("a.bin", good);
  std::filesystem::last_write_time(file, stamp);  // as if it had never been touched
  const auto resumed = import_dataset({file}, options_);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().to_string();
  EXPECT_EQ(resumed->resumed_tokens, 2u << 20);
  options_.folder = path("whole");
  const auto whole = import_dataset({file}, options_);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(content_of(path("d/dataset.json")), content_of(path("whole/dataset.json")));
  EXPECT_TRUE(verify_dataset(path("d"))->empty());
}

}  // namespace
}  // namespace tailor::data
