// Architecture: the complete shape of one decoder-only transformer, as a value.
//
// Everything that changes a parameter count or the mathematics of a forward pass is here, and
// nothing else: no learning rate, no data. The trainer builds the network from it, the search
// compares it, the store keeps its canonical JSON. Torch-free.
//
// Symbols (science.md 1.3): d = d_model, L = layers, H = heads, H_kv = kv_heads, e = head_dim,
// V = vocab_size, K = sub-MLPs of one layer's stack, d_h = hidden width of one sub-MLP.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::shape {

/// Where the norms stand.
enum class Family {
  kLlama,  ///< pre-norm: x + f(norm(x))
  kOlmo2,  ///< post-norm: x + norm(f(x)), RMSNorm over the whole projected q and k
};

/// Norms inside an hourglass stack (science.md 1.2; the papers do not state it,
/// the default is ours).
enum class FfnNorm {
  kPerSub,          ///< own RMSNorm with gain before each sub-MLP (default; K = 1 is a LLaMA block)
  kPerSubGainless,  ///< RMSNorm without gain before each sub-MLP
  kFirstOnly,       ///< z_0 = n(x), z_i = z_{i-1} + MLP_i(z_{i-1}), y = x + (z_K - z_0)
  kPerSubPost,      ///< h_i = h_{i-1} + n_i(MLP_i(h_{i-1})) (default of kOlmo2)
  kNone,            ///< no norm before any sub-MLP (reference cases "nonorm")
};

/// A name of model/ffn/table.cc.
enum class FfnKind {
  kSwiglu,     ///< conventional FFN: exactly one sub-MLP a layer
  kHourglass,  ///< K residual sub-MLPs a layer
};

/// Hidden widths of the sub-MLPs of one layer, in order; size K >= 1.
using LayerWidths = std::vector<std::int32_t>;

/// A decoder. A plain value: compare, copy, hash by `canonical_json`.
struct Architecture {
  Family family = Family::kLlama;
  std::int32_t d_model = 0;
  std::int32_t heads = 0;     ///< query heads; heads * head_dim need not equal d_model
  std::int32_t kv_heads = 0;  ///< divides heads; equal to it for MHA, 1 for MQA
  std::int32_t head_dim = 0;  ///< even (RoPE turns pairs)
  std::int32_t vocab_size = 0;
  bool tie_embeddings = true;
  FfnKind ffn_kind = FfnKind::kSwiglu;
  FfnNorm ffn_norm = FfnNorm::kPerSub;
  /// Adds a second skip around the whole stack (option, default none).
  bool ffn_outer_residual = false;
  std::vector<LayerWidths> widths;  ///< one entry a layer: the width schedule; its size is L
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  /// Norms of layer l = 1, 2, ... give 1/sqrt(l) of their value (LayerNorm scaling,
  /// arXiv 2502.05795).
  bool norm_scaling = false;
  /// The i-th residual write of the network (attention, then each sub-MLP,
  /// layer by layer) counts 1/sqrt(i).
  bool residual_scaling = false;

  std::int32_t layers() const { return static_cast<std::int32_t>(widths.size()); }
  friend bool operator==(const Architecture&, const Architecture&) = default;
};

/// What holds for an architecture of `family` where nothing is said (science.md 1.2 and 1.8); sizes
/// are 0. OLMo-2: norms after each sub-MLP, RoPE base 500000, eps 1e-6. The one table of these
/// defaults, for sweep files and spec.json alike.
Architecture defaults_of(Family family);

/// Ok, or kInvalidArgument naming the field, its value and what is allowed (all sizes >= 1,
/// kv_heads divides heads, head_dim even, kSwiglu has K = 1 in every layer, sizes small enough that
/// every count below fits in 63 bits).
Status validate(const Architecture& architecture);

/// One-line JSON with every field, keys in a fixed order, numbers in a fixed form: equal
/// architectures give equal text, so its SHA-256 identifies a candidate. `widths` is run-length
/// free and complete. `norm_scaling` and `residual_scaling` are written only when they are on.
std::string canonical_json(const Architecture& architecture);

/// Reads `canonical_json` back. Errors: kInvalidArgument naming the key; unknown keys are errors.
Result<Architecture> architecture_from_json(std::string_view json);

// Names used in TOML, JSON and proto: "llama", "olmo2"; "swiglu", "hourglass"; "per_sub", ...
std::string_view family_name(Family family);
std::string_view ffn_kind_name(FfnKind kind);
std::string_view ffn_norm_name(FfnNorm norm);
Result<Family> parse_family(std::string_view name);
Result<FfnKind> parse_ffn_kind(std::string_view name);
Result<FfnNorm> parse_ffn_norm(std::string_view name);

/// Same widths in every layer and sub-MLP: L layers of K sub-MLPs of width d_h.
std::vector<LayerWidths> uniform_widths(std::int32_t layers, std::int32_t k, std::int32_t d_h);

}  // namespace tailor::shape
