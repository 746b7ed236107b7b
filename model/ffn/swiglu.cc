// The conventional FFN: one gated MLP and its residual write.
//
//   y = x + W_dn (SiLU(W_g n(x)) * (W_u n(x)))           LLaMA (pre-norm)
//   y = x + n(W_dn (SiLU(W_g x) * (W_u x)))              OLMo 2 (post-norm)
//
// W_g, W_u: d_ff x d, W_dn: d x d_ff, no biases; 3 d d_ff parameters and a gain of d.
// Exported names are those of Hugging Face's llama and olmo2 models.
#include <ATen/TensorOperators.h>

#include "model/ffn/ffn.h"
#include "model/ffn/sub_mlp.h"

namespace tailor::ffn {
namespace {

class Swiglu final : public Ffn {
 public:
  explicit Swiglu(SubMlp mlp, bool outer_residual) : mlp_(mlp), outer_residual_(outer_residual) {}
  at::Tensor forward(const at::Tensor& x_nd) const override {
    const at::Tensor y_nd = mlp_.add_to(x_nd);
    return outer_residual_ ? x_nd + y_nd : y_nd;
  }
  std::int64_t count() const override { return mlp_.count(); }

 private:
  SubMlp mlp_;
  bool outer_residual_;
};

}  // namespace

std::unique_ptr<Ffn> make_swiglu(const FfnShape& shape, net::ParameterSet& parameters) {
  SubNorm norm = SubNorm::kPre;
  // OLMo 2 calls the norm behind attention post_attention_layernorm, LLaMA the one before the FFN.
  std::string norm_name = shape.layer_prefix + (shape.family == shape::Family::kLlama
                                                    ? "post_attention_layernorm.weight"
                                                    : "pre_feedforward_layernorm.weight");
  switch (shape.norm) {
    case shape::FfnNorm::kPerSub:
    case shape::FfnNorm::kFirstOnly:  // the same for a single sub-MLP
      break;
    case shape::FfnNorm::kPerSubGainless:
      norm = SubNorm::kPreGainless;
      break;
    case shape::FfnNorm::kPerSubPost:
      norm = SubNorm::kPost;
      norm_name = shape.layer_prefix + "post_feedforward_layernorm.weight";
      break;
    case shape::FfnNorm::kNone:
      norm = SubNorm::kNone;
      break;
  }
  return std::make_unique<Swiglu>(
      SubMlp(shape.d_model, shape.widths.front(), norm, shape.eps, shape.layer_prefix + "mlp.",
             norm_name, shape.key_prefix + "ffn.0.", parameters),
      shape.outer_residual);
}

}  // namespace tailor::ffn
