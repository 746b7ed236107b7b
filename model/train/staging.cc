#include "model/train/staging.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/check.h"

namespace tailor::train {

Staging::Staging(at::Device device, std::int64_t rows, std::int64_t time) : device_(device) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  const auto make = [&](const at::TensorOptions& where) {
    return StagedBatch{at::empty({rows, time}, where), at::empty({rows, time}, where)};
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

const StagedBatch& Staging::host() {
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

const StagedBatch& Staging::take() {
  TAILOR_CHECK(sent_);
  sent_ = false;
  Slot& slot = slots_[1 - next_];
  if (!copy_stream_) return slot.host;
  slot.copied->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return slot.device;
}

}  // namespace tailor::train
