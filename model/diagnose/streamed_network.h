// A decoder whose layers are read from their files when they are needed, so that host memory holds
// the embedding, the head, and as many layers as there is room for.
//
// The mathematics are those of net::Decoder, from the same modules: equal bits, which
// tests/model/diagnose compares. With room for all layers each is read once.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "base/status.h"
#include "model/diagnose/network.h"
#include "model/net/form.h"
#include "model/pretrained/tensor_source.h"

namespace tailor::diagnose {

struct StreamOptions {
  at::Device device{at::kCPU};
  bool bf16 = false;
  /// Bytes of weights to hold at most: layers beyond it are read again in every pass.
  double weight_bytes = 0;
};

/// Bytes of weights: of embedding, head and final norm together, of the largest layer, and of all.
struct WeightBytes {
  double ends = 0;
  double layer = 0;
  double all = 0;
  std::int64_t parameters = 0;
};
WeightBytes weight_bytes(const net::DecoderForm& form, bool bf16);

/// `source` outlives the result. Errors: as pretrained::load_decoder; kResourceExhausted naming the
/// bytes when embedding, head and one layer do not fit into weight_bytes.
Result<std::unique_ptr<ProbeNetwork>> make_streamed_network(const net::DecoderForm& form,
                                                            const pretrained::TensorSource& source,
                                                            const StreamOptions& options);

}  // namespace tailor::diagnose
