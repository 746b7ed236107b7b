// SentencePiece behind the Tokenizer interface. Part of the program tailor-tokenize only: the
// SentencePiece library carries a protobuf of its own and must not meet ours or LibTorch's in one
// process.
//
// Models trained by tailor-tokenize are lossless: BPE with byte fallback over unchanged text,
// decode(encode(x))
// == x for every UTF-8 text. Their pieces never cross from a word into the next space, so words are
// encoded once and remembered; the ids are those SentencePiece gives the whole text (but in words
// over 64 kB, which are cut). Other SentencePiece models are used as they are, document by
// document.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/data/corpus.h"
#include "model/data/tokenizer.h"

namespace tailor::data {

class SentencePieceTokenizer : public Tokenizer {
 public:
  /// False for a model that normalises its text (or has no byte fallback): decoding may differ from
  /// the text.
  virtual bool is_lossless() const = 0;
  /// Ids from SentencePiece itself for the whole text: what `encode` is tested against.
  virtual std::vector<std::uint32_t> encode_whole(std::string_view text) const = 0;
};

/// Loads a SentencePiece model. Errors: kNotFound; kDataLoss (cut, altered, not a model);
/// kInvalidArgument (a model without an EOS piece).
Result<std::unique_ptr<SentencePieceTokenizer>> load_sentencepiece(const std::string& path);

struct TrainingOptions {
  std::uint32_t vocab_size = 4096;  ///< EOS, unknown and the 256 byte pieces included; at least 300
  std::uint64_t sample_bytes =
      16u << 20;  ///< train on about so much text, drawn evenly from the corpus
  double validation_fraction =
      0;  ///< documents that prepare_dataset would hold out are not looked at
  CorpusOptions corpus;
  /// Told once, before the training proper, which takes most of the time.
  std::function<void(std::uint64_t sample_bytes, std::uint64_t corpus_bytes)> sampled;
};

struct TrainedModel {
  std::string model;               ///< the serialised SentencePiece model
  std::uint64_t corpus_bytes = 0;  ///< text that the sample was drawn from
  std::uint64_t sample_bytes = 0;
  CorpusSummary read;  ///< of the whole corpus, and what was passed over
};

/// Trains BPE with byte fallback. The same corpus and options give the same model. The corpus is
/// read twice when it is larger than the sample. Errors: those of list_corpus and read_corpus;
/// kInvalidArgument when the text is too little for the vocabulary or the vocabulary too small.
Result<TrainedModel> train_sentencepiece(const std::vector<std::string>& inputs,
                                         const TrainingOptions& options);

}  // namespace tailor::data
