// The data of a trial, opened and checked, and its batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "model/data/dataset.h"
#include "model/data/loader.h"
#include "model/train/staging.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

class BatchStream;

/// Threads: `batch` and `take_wait_ms` one at a time, the others from any.
class TrialData {
 public:
  /// Errors: those of Dataset and the loaders, naming the field of the spec.
  static Result<std::unique_ptr<TrialData>> open(const protocol::TrialSpec& spec);
  ~TrialData();
  TrialData(const TrialData&) = delete;
  TrialData& operator=(const TrialData&) = delete;

  /// On the CPU: samples [first_sample, first_sample + rows) of the run: a function of the spec's
  /// seed alone, whatever steps, micro-batches or ranks they are cut into. Read ahead and written
  /// again after the next call (batch_stream.h). Errors: kDataLoss naming the file.
  Result<Batch> batch(std::uint64_t first_sample, std::int64_t rows) const;
  /// Mean milliseconds that `batch` took since this was last asked; NaN without a call.
  double take_wait_ms() const;

  const data::Dataset& train() const { return *train_; }
  const data::Dataset& validation() const { return *validation_; }
  const data::EvaluationLoader& evaluation() const { return evaluation_; }
  /// SHA-256 over both datasets.
  const std::string& hash() const { return hash_; }

 private:
  TrialData(std::unique_ptr<data::Dataset> train, std::unique_ptr<data::Dataset> validation,
            data::TrainLoader loader, data::EvaluationLoader evaluation);

  // On the heap: the loaders keep references to them.
  std::unique_ptr<data::Dataset> train_;
  std::unique_ptr<data::Dataset> validation_;
  data::TrainLoader loader_;
  std::unique_ptr<BatchStream> stream_;
  data::EvaluationLoader evaluation_;
  std::string hash_;
};

}  // namespace tailor::train
