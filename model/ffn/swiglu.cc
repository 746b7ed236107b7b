// The conventional FFN: one gated MLP and its residual write.
//
//   y = x + W_dn (act(W_g n(x)) * (W_u n(x)))            LLaMA, Mistral (pre-norm; act = SiLU)
//   y = x + n(W_dn (act(W_g x) * (W_u x)))               OLMo 2 (post-norm)
//   y = x + n_b(W_dn (act(W_g n_a(x)) * (W_u n_a(x))))   Gemma (both; act = GELU)
//
// W_g, W_u: d_ff x d, W_dn: d x d_ff, no biases; 3 d d_ff parameters and a gain of d for each norm.
// Exported names are those of Hugging Face's models.
#include <ATen/TensorOperators.h>

#include "model/ffn/ffn.h"
#include "model/ffn/sub_mlp.h"

namespace tailor::ffn {
namespace {

class Swiglu final : public Ffn {
 public:
  explicit Swiglu(SubMlp mlp, bool outer_residual)
      : mlp_(std::move(mlp)), outer_residual_(outer_residual) {}
  at::Tensor forward(const at::Tensor& x_nd, const net::FfnTap* tap) const override {
    const at::Tensor y_nd = mlp_.add_to(x_nd, tap);
    return outer_residual_ ? x_nd + y_nd : y_nd;
  }
  std::int64_t count() const override { return mlp_.count(); }

 private:
  SubMlp mlp_;
  bool outer_residual_;
};

}  // namespace

std::unique_ptr<Ffn> make_swiglu(const FfnShape& given, net::ParameterSet& parameters) {
  FfnShape shape = given;
  // The same for a single sub-MLP.
  if (shape.norm == shape::FfnNorm::kFirstOnly) shape.norm = shape::FfnNorm::kPerSub;
  const std::string& prefix = shape.layer_prefix;
  const SubMlpNames names{
      prefix + "mlp.",
      prefix + (shape.attention_norm_behind ? "pre_feedforward_layernorm.weight"
                                            : "post_attention_layernorm.weight"),
      prefix + "post_feedforward_layernorm.weight"};
  return std::make_unique<Swiglu>(SubMlp(shape, 0, names, parameters), shape.outer_residual);
}

}  // namespace tailor::ffn
