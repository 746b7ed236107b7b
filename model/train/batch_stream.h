// BatchStream: batches as tensors, read ahead by a thread once it is clear how the run goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "model/data/prefetch.h"
#include "model/train/trial_data.h"

namespace tailor::train {

/// Threads: one at a time.
class BatchStream {
 public:
  /// `loader` outlives this.
  explicit BatchStream(const data::TrainLoader& loader) : loader_(loader) {}

  /// Samples [first_sample, first_sample + rows), the same as TrainLoader::fill gives. Two calls
  /// with the same `rows` and a growing `first_sample` are taken for the steps of a run (of one
  /// rank): from then on the next batch is read while the step works. A call that does not fit is
  /// read on the spot and begins anew. The tensors are written again after the next call.
  /// Errors: kDataLoss naming the file.
  Result<Batch> batch(std::uint64_t first_sample, std::int64_t rows);

  /// Mean milliseconds that a batch was waited for since this was last asked; NaN without any.
  double take_wait_ms();

 private:
  struct Call {
    std::uint64_t first_sample;
    std::int64_t rows;
  };

  Result<Batch> read(const Call& call) const;
  void read_ahead(const Call& next, std::uint64_t stride);

  const data::TrainLoader& loader_;
  std::optional<Call> last_;      // what was asked for
  std::optional<Call> expected_;  // what the thread reads next, when there is one
  std::uint64_t stride_ = 0;
  std::vector<Batch> batches_;
  std::unique_ptr<data::PrefetchLoader> ahead_;
  double waited_s_ = 0;
  std::int64_t calls_ = 0;
};

}  // namespace tailor::train
