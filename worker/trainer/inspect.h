// `tailor-trainer logits` and `tailor-trainer clouds`: what a pretrained or exported model does
// with given tokens, as .npy files.
#pragma once

#include <string>

namespace tailor::trainer {

struct InspectOptions {
  std::string model;   ///< folder with config.json and safetensors, or GGUF
  std::string tokens;  ///< .npy of integers, (T) or (B, T)
  std::string out;     ///< logits: the .npy to write; clouds: a folder, made if need be
  std::string device = "cpu";
  bool bf16 = false;
  int threads = 1;
  std::string layers = "all";  ///< clouds: "all" or "0,3,5"
  bool sub_blocks = false;     ///< clouds: also around each sub-MLP
  int skip = 0;                ///< clouds: positions left out at the start of every sequence
};

/// Writes (B, T, v) float32 scores to `out`. Returns the program's exit code (protocol/report.h).
int run_logits(const InspectOptions& options);

/// Writes, for each layer, `out`/layer_L_before.npy and `out`/layer_L_after.npy: the residual
/// stream that enters and leaves its FFN sub-block, (B (T - skip), d) float32 in the order of the
/// tokens, and `out`/sequences.npy: the row of the tokens that each comes from, which `tailor
/// geometry work --sequences` takes; with `sub_blocks` also layer_L_sub_I_*.npy around each
/// sub-MLP. Returns the program's exit code.
int run_clouds(const InspectOptions& options);

}  // namespace tailor::trainer
