#include "model/train/batch_stream.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/clock.h"

namespace tailor::train {
namespace {

constexpr int kStreamBuffers = 2;  // one with the step, one that is being read

Batch empty_batch(std::int64_t rows, std::int64_t time) {
  return {at::empty({rows, time}, at::kLong), at::empty({rows, time}, at::kLong)};
}

data::BatchBuffer values_of(const Batch& batch) {
  const auto span_of = [](const at::Tensor& x) {
    return std::span<std::int64_t>(x.mutable_data_ptr<std::int64_t>(),
                                   static_cast<std::size_t>(x.numel()));
  };
  return {span_of(batch.tokens), span_of(batch.targets)};
}

}  // namespace

Result<Batch> BatchStream::read(const Call& call) const {
  Batch batch = empty_batch(call.rows, loader_.sequence_length());
  const data::BatchBuffer values = values_of(batch);
  TAILOR_RETURN_IF_ERROR(
      loader_.fill<std::int64_t>(call.first_sample, values.inputs, values.targets));
  return batch;
}

void BatchStream::read_ahead(const Call& next, std::uint64_t stride) {
  std::vector<data::BatchBuffer> buffers;
  for (int i = 0; i < kStreamBuffers; ++i) {
    batches_.push_back(empty_batch(next.rows, loader_.sequence_length()));
    buffers.push_back(values_of(batches_.back()));
  }
  stride_ = stride;
  expected_ = next;
  ahead_ = std::make_unique<data::PrefetchLoader>(
      loader_,
      data::BatchPlan{.first_sample = next.first_sample,
                      .stride = stride,
                      .rows = static_cast<std::uint64_t>(next.rows),
                      .batches = std::numeric_limits<std::uint64_t>::max()},
      std::move(buffers));
}

Result<Batch> BatchStream::batch(std::uint64_t first_sample, std::int64_t rows) {
  const Call call{first_sample, rows};
  const double begin_s = steady_seconds();
  const auto count_wait = [&] {
    waited_s_ += steady_seconds() - begin_s;
    ++calls_;
  };
  if (expected_ && expected_->first_sample == first_sample && expected_->rows == rows) {
    const Result<std::size_t> index = ahead_->next();
    count_wait();
    if (!index) return error(index.error());
    last_ = call;
    expected_->first_sample += stride_;
    return batches_[*index];
  }
  ahead_.reset();
  expected_.reset();
  batches_.clear();
  Result<Batch> batch = read(call);
  count_wait();
  if (batch && last_ && last_->rows == rows && first_sample > last_->first_sample) {
    const std::uint64_t stride = first_sample - last_->first_sample;
    read_ahead({first_sample + stride, rows}, stride);
  }
  last_ = call;
  return batch;
}

double BatchStream::take_wait_ms() {
  const double mean_ms = calls_ > 0 ? 1000 * waited_s_ / static_cast<double>(calls_) : std::nan("");
  waited_s_ = 0;
  calls_ = 0;
  return mean_ms;
}

}  // namespace tailor::train
