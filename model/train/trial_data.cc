#include "model/train/trial_data.h"

#include <utility>

#include "base/hash.h"
#include "model/train/batch_stream.h"

namespace tailor::train {

TrialData::TrialData(std::unique_ptr<data::Dataset> train,
                     std::unique_ptr<data::Dataset> validation, data::TrainLoader loader,
                     data::EvaluationLoader evaluation)
    : train_(std::move(train)),
      validation_(std::move(validation)),
      loader_(std::move(loader)),
      stream_(std::make_unique<BatchStream>(loader_)),
      evaluation_(std::move(evaluation)),
      hash_(sha256_hex(train_->content_hash() + "\n" + validation_->content_hash())) {}

TrialData::~TrialData() = default;

Result<std::unique_ptr<TrialData>> TrialData::open(const protocol::TrialSpec& spec) {
  data::DatasetOptions options;
  options.vocab_size = static_cast<std::uint32_t>(spec.architecture.vocab_size);
  const auto failed = [](const Status& status, const char* field) {
    return error(status.with_context(field));
  };
  auto train = data::Dataset::open_glob(spec.data.train, options);
  if (!train) return failed(train.error(), "data.train");
  auto validation = data::Dataset::open_glob(spec.data.validation, options);
  if (!validation) return failed(validation.error(), "data.validation");
  if (const Status status = data::check_same_tokenizer(*train, *validation); !status) {
    return failed(status, "data.validation");
  }
  auto train_set = std::make_unique<data::Dataset>(std::move(*train));
  auto validation_set = std::make_unique<data::Dataset>(std::move(*validation));
  auto loader = data::TrainLoader::create(*train_set, spec.data.sequence_length, spec.seed);
  if (!loader) return failed(loader.error(), "data.train");
  auto evaluation =
      data::EvaluationLoader::create(*validation_set, spec.data.sequence_length,
                                     static_cast<std::uint64_t>(spec.train.validation_tokens));
  if (!evaluation) return failed(evaluation.error(), "data.validation");
  return std::unique_ptr<TrialData>(new TrialData(std::move(train_set), std::move(validation_set),
                                                  std::move(*loader), std::move(*evaluation)));
}

Result<Batch> TrialData::batch(std::uint64_t first_sample, std::int64_t rows) const {
  return stream_->batch(first_sample, rows);
}

double TrialData::take_wait_ms() const { return stream_->take_wait_ms(); }

}  // namespace tailor::train
