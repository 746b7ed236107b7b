// A pretrained or exported model as a decoder for inference.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/net/decoder.h"
#include "model/net/form.h"
#include "model/pretrained/tensor_source.h"

namespace tailor::pretrained {

/// A decoder for inference with the weights of `source`, read one by one straight into their place,
/// so memory holds them once. Tensor names may have the prefixes of multimodal checkpoints; tensors
/// of a vision tower are skipped. A stored head beside a tied embedding must equal it. Errors that
/// name file and tensor: kDataLoss (missing, of another shape, left over), kResourceExhausted
/// naming how many bytes are needed, those of the source.
Result<std::unique_ptr<net::Decoder>> load_decoder(net::DecoderForm form,
                                                   const TensorSource& source, at::Device device,
                                                   bool bf16);

/// The name under which `source` keeps the decoder's tensor `name`: as it is, or with the prefix of
/// a multimodal checkpoint.
std::string stored_name(const TensorSource& source, std::string_view name);

/// Ok when every tensor of `source` is one of `names` (the decoder's own), of a vision tower, or
/// known to say nothing new; a stored head beside a tied embedding must equal it. Errors: kDataLoss
/// naming the tensor.
Status check_tensors(const TensorSource& source, std::span<const std::string> names,
                     bool tied_head);

/// A folder with config.json and safetensors, or a GGUF file (is_gguf_path). Errors: those of
/// read_config, open_pretrained, open_gguf_source, load_decoder.
Result<std::unique_ptr<net::Decoder>> load_model(const std::string& path, at::Device device,
                                                 bool bf16);

}  // namespace tailor::pretrained
