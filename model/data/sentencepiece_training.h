// Training of a SentencePiece BPE model on a corpus. Part of the program tailor-tokenize only, as
// tokenizers/sentencepiece_tokenizer.h, which reads what is trained here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/data/corpus.h"

namespace tailor::data {

struct TrainingOptions {
  std::uint32_t vocab_size = 4096;  ///< EOS, unknown and the 256 byte pieces included; at least 300
  /// Train on about so much text, drawn evenly from the corpus.
  std::uint64_t sample_bytes = 16u << 20;
  /// Documents that prepare_dataset would hold out are not looked at.
  double validation_fraction = 0;
  CorpusOptions corpus;
  /// Told once, before the training proper, which takes most of the time.
  std::function<void(std::uint64_t sample_bytes, std::uint64_t corpus_bytes)> sampled;
};

struct TrainedModel {
  std::string model;               ///< the serialised SentencePiece model
  std::uint64_t corpus_bytes = 0;  ///< text that the sample was drawn from
  std::uint64_t sample_bytes = 0;
  CorpusSummary read;                   ///< of the whole corpus, and what was skipped
  std::vector<PassedOver> passed_over;  ///< of its folders
};

/// Trains BPE with byte fallback. The same corpus and options give the same model. The corpus is
/// read twice when it is larger than the sample. Errors: those of list_corpus and read_corpus;
/// kInvalidArgument when the text is too little for the vocabulary or the vocabulary too small.
Result<TrainedModel> train_sentencepiece(const std::vector<std::string>& inputs,
                                         const TrainingOptions& options);

}  // namespace tailor::data
