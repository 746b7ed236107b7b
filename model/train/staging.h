// Between the host and a GPU, without either waiting for the other. Batches are filled in
// page-locked memory and copied on a stream of their own while the step before is still running;
// the numbers of steps are copied behind them and wait until somebody reads. On the CPU the same
// calls hand tensors over.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace tailor::train {

/// Sequences as the network reads them: tokens and their targets, (rows, T) int64.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
};

/// Use: fill host(), send(), take(), launch the step; then fill the next while it runs.
/// At most one batch is sent and not taken. Threads: one.
class Staging {
 public:
  Staging(at::Device device, std::int64_t rows, std::int64_t time);

  /// Host tensors of the next batch, to be overwritten. Waits until their last copy is over.
  const Batch& host();
  /// Starts the copy of host() to the device. REQUIRES: the batch sent before was taken.
  void send();
  /// The batch that was sent, on the device, for work on the current stream. It is overwritten by
  /// the second send() after this.
  const Batch& take();
  /// True between send() and take().
  bool sent() const { return sent_; }

 private:
  struct Slot {
    Batch host;
    Batch device;
    std::optional<c10::Event> copied;  // on the copy stream
    std::optional<c10::Event> used;    // on the stream of the step that took it
  };

  at::Device device_;
  std::optional<c10::Stream> copy_stream_;  // none on the CPU
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;  // to be filled
  bool sent_ = false;
};

/// Loss and gradient norm of steps that were launched. Threads: one.
class StepNumbers {
 public:
  explicit StepNumbers(at::Device device);

  /// Adds {loss, norm} (2 doubles on the device) of a step just launched on the current stream;
  /// waits only when kMost are unread.
  void push(const at::Tensor& numbers);
  /// Those pushed and not read, oldest first, once their steps are over.
  std::vector<std::array<double, 2>> read();
  std::int64_t unread() const { return static_cast<std::int64_t>(read_.size()) + copied_; }

  static constexpr std::int64_t kMost = 1024;

 private:
  void collect();

  at::Device device_;
  at::Tensor buffer_;        // (kMost, 2), page-locked; undefined on the CPU
  std::int64_t copied_ = 0;  // rows of `buffer_` that are on their way or there
  std::vector<std::array<double, 2>> read_;
};

}  // namespace tailor::train
