// An even, deterministic sample of the corpus through SentencePiece's trainer.
#include "model/data/sentencepiece_training.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/rng.h"
#include "model/data/prepare.h"

namespace tailor::data {
namespace {

constexpr std::uint32_t kSpecialPieces = 258;  // unknown, EOS, 256 bytes
constexpr std::uint32_t kVocabSizeMin = 300;
constexpr std::uint32_t kVocabSizeMax = 1u << 20;
// The sample is drawn in blocks of about this size, cut at newlines.
constexpr std::size_t kSampleBlockBytes = 16 << 10;
constexpr std::size_t kSentenceBytesMax = 4096;
// Characters that get a piece of their own cover so much of the sample at most. One that is rarer
// than the last merges would be wasted: on 16 MB of text the merges of rank V occur about
// characters / (20 V) times, so rarer characters go by bytes; and at least half of the vocabulary
// is left for merges.
constexpr double kCharacterCoverage = 0.9995;
constexpr std::uint64_t kRareCharacterFactor = 20;
constexpr std::uint32_t kCharacterShare = 2;

/// The pieces that may go into the sample: calls `visit(block)` for every block
/// of every training document.
template <typename Visit>
Result<CorpusSummary> for_each_block(const std::vector<CorpusFile>& files,
                                     const TrainingOptions& options, const Visit& visit) {
  std::uint64_t index = 0;
  return read_corpus(files, options.corpus, [&](CorpusPiece&& piece) {
    if (!is_validation_document(piece.document, options.validation_fraction)) {
      std::string_view text = piece.text;
      while (!text.empty()) {
        std::size_t size = text.find('\n', std::min(kSampleBlockBytes, text.size()));
        size = size == std::string_view::npos ? text.size() : size + 1;
        visit(piece.document, index++, text.substr(0, size));
        text.remove_prefix(size);
      }
    }
    if (piece.ends_document) index = 0;
    return Status::ok();
  });
}

/// Cuts text into training sentences: at newlines, tabs and U+2581 (SentencePiece's space), none of
/// which may get into a piece, and below the trainer's limit.
void add_sentences(std::string_view text, std::vector<std::string>* sentences) {
  constexpr std::string_view kWordStart = "\xE2\x96\x81";
  const auto add = [&](std::string_view sentence) {
    while (sentence.size() > kSentenceBytesMax) {
      std::size_t cut = sentence.rfind(' ', kSentenceBytesMax);
      if (cut == std::string_view::npos || cut == 0) {
        cut = kSentenceBytesMax;
        while ((static_cast<unsigned char>(sentence[cut]) & 0xC0) == 0x80) --cut;
      }
      sentences->emplace_back(sentence.substr(0, cut));
      sentence.remove_prefix(cut);
    }
    if (!sentence.empty()) sentences->emplace_back(sentence);
  };
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool mark = text.substr(at).starts_with(kWordStart);
    if (text[at] != '\n' && text[at] != '\t' && text[at] != '\0' && !mark) continue;
    add(text.substr(start, at - start));
    start = at + (mark ? kWordStart.size() : 1);
  }
  add(text.substr(start));
}

/// The length of the UTF-8 character at `at`.
std::size_t character_size(std::string_view text, std::size_t at) {
  std::size_t size = 1;
  while (at + size < text.size() && (static_cast<unsigned char>(text[at + size]) & 0xC0) == 0x80) {
    ++size;
  }
  return size;
}

/// The characters that get pieces of their own.
std::unordered_set<std::string> frequent_characters(const std::vector<std::string>& sentences,
                                                    std::uint32_t vocab_size) {
  std::unordered_map<std::string_view, std::uint64_t> counts;
  std::uint64_t total = 0;
  for (const std::string& sentence : sentences) {
    for (std::size_t at = 0; at < sentence.size();) {
      const std::size_t size = character_size(sentence, at);
      ++counts[std::string_view(sentence).substr(at, size)];
      ++total;
      at += size;
    }
  }
  std::vector<std::pair<std::uint64_t, std::string_view>> sorted;
  for (const auto& [character, count] : counts) sorted.emplace_back(count, character);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::unordered_set<std::string> kept;
  const std::size_t limit = (vocab_size - kSpecialPieces) / kCharacterShare;
  std::uint64_t covered = 0;
  for (const auto& [count, character] : sorted) {
    const bool rare = count * kRareCharacterFactor * vocab_size < total;
    const bool enough =
        static_cast<double>(covered) >= kCharacterCoverage * static_cast<double>(total);
    if (kept.size() >= limit || rare || enough) break;
    kept.emplace(character);
    covered += count;
  }
  return kept;
}

/// The sentences cut at every character that is not in `kept`. (SentencePiece can do the like by a
/// coverage, but takes none below 0.98.)
std::vector<std::string> without_others(const std::vector<std::string>& sentences,
                                        const std::unordered_set<std::string>& kept) {
  std::vector<std::string> parts;
  for (const std::string& sentence : sentences) {
    std::size_t start = 0;
    for (std::size_t at = 0; at < sentence.size();) {
      const std::size_t size = character_size(sentence, at);
      if (!kept.contains(sentence.substr(at, size))) {
        if (at > start) parts.push_back(sentence.substr(start, at - start));
        start = at + size;
      }
      at += size;
    }
    if (start < sentence.size()) parts.push_back(sentence.substr(start));
  }
  return parts;
}

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return index_ >= sentences_.size(); }
  void Next() override { ++index_; }
  const std::string& value() const override { return sentences_[index_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  std::size_t index_ = 0;
};

}  // namespace

Result<TrainedModel> train_sentencepiece(const std::vector<std::string>& inputs,
                                         const TrainingOptions& options) {
  if (options.vocab_size < kVocabSizeMin || options.vocab_size > kVocabSizeMax) {
    return error(
        Code::kInvalidArgument,
        fmt::format("vocabulary size {} is not in [{}, {}]; below, use --model bytes (257)",
                    options.vocab_size, kVocabSizeMin, kVocabSizeMax));
  }
  if (options.sample_bytes == 0) return error(Code::kInvalidArgument, "the sample is empty");
  TAILOR_ASSIGN_OR_RETURN(CorpusListing listing, list_corpus(inputs));
  const std::vector<CorpusFile>& files = listing.files;

  TrainedModel trained;
  trained.passed_over = std::move(listing.passed_over);
  std::vector<std::string> sentences;
  // First pass: all of it, until it is clear that it does not fit.
  bool fits = true;
  TAILOR_ASSIGN_OR_RETURN(
      const CorpusSummary read,
      for_each_block(files, options,
                     [&](const std::string&, std::uint64_t, std::string_view block) {
                       trained.corpus_bytes += block.size();
                       if (fits && trained.corpus_bytes > options.sample_bytes) {
                         fits = false;
                         std::vector<std::string>().swap(sentences);
                       }
                       if (fits) add_sentences(block, &sentences);
                     }));
  trained.read = read;
  trained.sample_bytes = trained.corpus_bytes;
  if (!fits) {
    trained.sample_bytes = 0;
    const double share =
        static_cast<double>(options.sample_bytes) / static_cast<double>(trained.corpus_bytes);
    const Result<CorpusSummary> again = for_each_block(
        files, options,
        [&](const std::string& document, std::uint64_t index, std::string_view block) {
          const std::uint64_t draw = keyed_u64(stable_hash(document), index, 0);
          if (static_cast<double>(draw >> 11) * 0x1.0p-53 >= share) return;
          trained.sample_bytes += block.size();
          add_sentences(block, &sentences);
        });
    if (!again.has_value()) return error(again.error());
  }
  if (sentences.empty()) {
    return error(Code::kInvalidArgument,
                 "no text to train on: all documents are held out or blank");
  }

  if (options.sampled) options.sampled(trained.sample_bytes, trained.corpus_bytes);
  sentences = without_others(sentences, frequent_characters(sentences, options.vocab_size));
  Sentences iterator(sentences);
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "bpe"},
       {"vocab_size", fmt::format("{}", options.vocab_size)},
       {"byte_fallback", "true"},
       {"character_coverage", "1.0"},
       {"normalization_rule_name", "identity"},
       {"remove_extra_whitespaces", "false"},
       {"add_dummy_prefix", "false"},
       {"allow_whitespace_only_pieces", "true"},
       {"split_digits", "true"},
       {"max_sentence_length", fmt::format("{}", 2 * kSentenceBytesMax)},
       {"num_threads", "2"},  // written into the model: never the machine's own number
       {"unk_id", "0"},
       {"eos_id", "1"},
       {"bos_id", "-1"},
       {"pad_id", "-1"},
       {"minloglevel", "2"}},
      &iterator, &trained.model);
  if (!status.ok()) {
    return error(
        Code::kInvalidArgument,
        fmt::format("cannot train {} pieces on {} bytes of text; give more text or a smaller "
                    "--vocab-size (SentencePiece: {})",
                    options.vocab_size, trained.sample_bytes, status.ToString()));
  }
  return trained;
}

}  // namespace tailor::data
