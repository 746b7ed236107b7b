#include "model/train/staging.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "base/check.h"

namespace tailor::train {

Staging::Staging(at::Device device, std::int64_t rows, std::int64_t time) : device_(device) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  const auto make = [&](const at::TensorOptions& where) {
    return Batch{at::empty({rows, time}, where), at::empty({rows, time}, where)};
  };
  const bool copies = !device.is_cpu();
  if (copies) copy_stream_ = c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
  for (Slot& slot : slots_) {
    slot.host = make(options.pinned_memory(copies));
    if (!copies) continue;
    slot.device = make(options.device(device));
    slot.copied.emplace(device.type());
    slot.used.emplace(device.type());
  }
}

const Batch& Staging::host() {
  Slot& slot = slots_[next_];
  if (slot.copied) slot.copied->synchronize();
  return slot.host;
}

void Staging::send() {
  TAILOR_CHECK(!sent_);
  Slot& slot = slots_[next_];
  if (copy_stream_) {
    const c10::impl::VirtualGuardImpl runtime(device_.type());
    // All work on the batch of the other slot has been launched by now.
    slots_[1 - next_].used->record(runtime.getStream(device_));
    slot.used->block(*copy_stream_);
    const c10::StreamGuard guard(*copy_stream_);
    slot.device.tokens.copy_(slot.host.tokens, /*non_blocking=*/true);
    slot.device.targets.copy_(slot.host.targets, /*non_blocking=*/true);
    slot.copied->record(*copy_stream_);
  }
  sent_ = true;
  next_ = 1 - next_;
}

const Batch& Staging::take() {
  TAILOR_CHECK(sent_);
  sent_ = false;
  Slot& slot = slots_[1 - next_];
  if (!copy_stream_) return slot.host;
  slot.copied->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return slot.device;
}

StepNumbers::StepNumbers(at::Device device) : device_(device) {
  if (device.is_cpu()) return;
  buffer_ = at::empty({kMost, 2}, at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
}

void StepNumbers::push(const at::Tensor& numbers) {
  if (device_.is_cpu()) {
    const double* values = numbers.const_data_ptr<double>();
    read_.push_back({values[0], values[1]});
    return;
  }
  if (copied_ == kMost) collect();
  buffer_.select(0, copied_++).copy_(numbers, /*non_blocking=*/true);
}

void StepNumbers::collect() {
  if (copied_ == 0) return;
  c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  const double* values = buffer_.const_data_ptr<double>();
  for (std::int64_t i = 0; i < copied_; ++i) read_.push_back({values[2 * i], values[2 * i + 1]});
  copied_ = 0;
}

std::vector<std::array<double, 2>> StepNumbers::read() {
  collect();
  return std::exchange(read_, {});
}

}  // namespace tailor::train
