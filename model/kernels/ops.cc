// Defines the operators of ops.h with the dispatcher, refuses calls that op_table.h does not list,
// and says what they give on the meta level (sizes and types without values).
#include "model/kernels/ops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>
#include <initializer_list>

#include "model/kernels/op_check.h"
#include "model/kernels/ops_cpu.h"

namespace tailor::kernels {
namespace {

bool present(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

const at::Tensor* given(const at::Tensor& x) { return &x; }
const at::Tensor* given(const std::optional<at::Tensor>& x) { return present(x) ? &*x : nullptr; }

// Throws c10::NotImplementedError for types, c10::Error for shapes, that the line of `op` does not
// have: the same on every device, since it is before the dispatcher. `result`: the type wanted of
// the first output, where the caller chooses it. `letters`: sizes given by number.
template <std::size_t n>
void check(Op op, const std::array<const at::Tensor*, n>& inputs, Type result = Type::any,
           std::initializer_list<std::pair<const char*, std::int64_t>> letters = {}) {
  const Operator& line = kOperators[static_cast<std::size_t>(op)];
  static_assert(n <= kInputsMax);
  std::array<Type, n> types{};
  for (std::size_t i = 0; i < n; ++i) {
    types[i] = inputs[i] == nullptr ? Type::none : type_of(inputs[i]->scalar_type());
  }
  std::array<Type, kOutputsMax> results{};
  results.fill(Type::any);
  results[0] = result;
  const std::span<const Type> outputs(results.data(), outputs_of(line).size());
  TORCH_CHECK_NOT_IMPLEMENTED(find_combination(line, types, outputs) != nullptr,
                              refusal(line, types, outputs));
  Sizes sizes;
  for (const auto& [letter, size] : letters) {
    TORCH_CHECK(sizes.fit(letter, std::array{size}), "tailor::", line.name, ": ", letter, " is ",
                size, ", which fits no other operand (model/kernels/op_table.h)");
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (inputs[i] == nullptr) continue;
    const at::IntArrayRef shape = inputs[i]->sizes();
    TORCH_CHECK(sizes.fit(line.inputs[i].shape, {shape.data(), shape.size()}),
                "tailor::", line.name, ": ", line.inputs[i].name, " is ", shape, ", which is not (",
                line.inputs[i].shape, ") beside the other operands (model/kernels/op_table.h)");
  }
}

// Looks an operator up once. `Signature` is the C++ type of its C++ implementations.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// ---- What operators give, without values.
namespace meta {

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const std::optional<at::Tensor>&,
                                            double, at::ScalarType dtype) {
  return {at::empty(x.sizes(), x.options().dtype(dtype)),
          at::empty({x.size(0)}, x.options().dtype(at::kFloat))};
}
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor&, const at::Tensor& x,
                                                     const std::optional<at::Tensor>& weight,
                                                     const at::Tensor&,
                                                     const std::optional<at::Tensor>&) {
  return {at::empty(x.sizes(), x.options()),
          present(weight) ? at::empty_like(*weight) : at::Tensor()};
}
void product_(at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&) {
}
at::Tensor swiglu(const at::Tensor& gate_up) {
  return at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
}
at::Tensor swiglu_backward(const at::Tensor&, const at::Tensor& gate_up) {
  return at::empty(gate_up.sizes(), gate_up.options());
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv,
                                                          const at::Tensor& cos, const at::Tensor&,
                                                          std::int64_t batch, std::int64_t heads,
                                                          std::int64_t kv_heads) {
  const auto make = [&](std::int64_t count) {
    return at::empty({batch, count, cos.size(0), 2 * cos.size(1)}, qkv.options());
  };
  return {make(heads), make(kv_heads), make(kv_heads)};
}
at::Tensor rope_merge(const at::Tensor& q, const at::Tensor& k, const at::Tensor&,
                      const at::Tensor&, const at::Tensor&) {
  return at::empty({q.size(0) * q.size(2), (q.size(1) + 2 * k.size(1)) * q.size(3)}, q.options());
}
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor&, double, bool, double) {
  return at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
}
at::Tensor sum_squares(const at::Tensor& x) {
  return at::empty({}, x.options().dtype(at::kDouble));
}

}  // namespace meta
}  // namespace

TORCH_LIBRARY(tailor, library) {
  library.def(
      "rms_norm(Tensor x, Tensor? weight, float eps, ScalarType dtype) -> (Tensor, Tensor)");
  library.def(
      "rms_norm_backward(Tensor grad, Tensor x, Tensor? weight, Tensor rstd, Tensor? skip=None) -> "
      "(Tensor, Tensor)");
  library.def("product_(Tensor(a!) out, Tensor? base, Tensor a, Tensor b) -> ()");
  library.def("swiglu(Tensor gate_up) -> Tensor");
  library.def("swiglu_backward(Tensor grad, Tensor gate_up) -> Tensor");
  library.def(
      "rope_split(Tensor qkv, Tensor cos, Tensor sin, int batch, int heads, int kv_heads) -> "
      "(Tensor, "
      "Tensor, Tensor)");
  library.def("rope_merge(Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin) -> Tensor");
  library.def(
      "cross_entropy_(Tensor(a!) logits, Tensor targets, float scale, bool with_grad, float "
      "z_loss=0) "
      "-> Tensor");
  library.def("sum_squares(Tensor x) -> Tensor");
  library.def(
      "adamw_(Tensor(a!) w, Tensor g, Tensor(b!) m, Tensor(c!) v, Tensor(d!)? low, float lr, float "
      "beta1, float beta2, float eps, float decay, float gradient_scale, int t) -> ()");
  library.def("embed_backward_(Tensor(a!) sum, Tensor grad, Tensor tokens) -> ()");
}

TORCH_LIBRARY_IMPL(tailor, CPU, library) { register_cpu_operators(library); }

// As on a GPU: operators of the CPU alone have no implementation here.
TORCH_LIBRARY_IMPL(tailor, Meta, library) {
#define TAILOR_CASE(NAME) library.impl(#NAME, &meta::NAME);
  TAILOR_SHARED_OPERATORS(TAILOR_CASE)
#undef TAILOR_CASE
}

Type type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Type::f32;
    case at::kBFloat16:
      return Type::bf16;
    case at::kDouble:
      return Type::f64;
    case at::kLong:
      return Type::i64;
    default:
      return Type::other;
  }
}

namespace op {

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x,
                                            const std::optional<at::Tensor>& weight, double eps,
                                            at::ScalarType dtype) {
  static const auto handle = find<decltype(meta::rms_norm)>("tailor::rms_norm");
  check(Op::rms_norm, std::array{given(x), given(weight)}, type_of(dtype));
  return handle.call(x, weight, eps, dtype);
}
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const std::optional<at::Tensor>& weight,
                                                     const at::Tensor& rstd,
                                                     const std::optional<at::Tensor>& skip) {
  static const auto handle = find<decltype(meta::rms_norm_backward)>("tailor::rms_norm_backward");
  check(Op::rms_norm_backward,
        std::array{given(grad), given(x), given(weight), given(rstd), given(skip)});
  return handle.call(grad, x, weight, rstd, skip);
}
void product_(at::Tensor& out, const std::optional<at::Tensor>& base, const at::Tensor& a,
              const at::Tensor& b) {
  static const auto handle = find<decltype(meta::product_)>("tailor::product_");
  check(Op::product_, std::array{given(out), given(base), given(a), given(b)});
  handle.call(out, base, a, b);
}
at::Tensor swiglu(const at::Tensor& gate_up) {
  static const auto handle = find<decltype(meta::swiglu)>("tailor::swiglu");
  check(Op::swiglu, std::array{given(gate_up)});
  return handle.call(gate_up);
}
at::Tensor swiglu_backward(const at::Tensor& grad, const at::Tensor& gate_up) {
  static const auto handle = find<decltype(meta::swiglu_backward)>("tailor::swiglu_backward");
  check(Op::swiglu_backward, std::array{given(grad), given(gate_up)});
  return handle.call(grad, gate_up);
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv,
                                                          const at::Tensor& cos,
                                                          const at::Tensor& sin, std::int64_t batch,
                                                          std::int64_t heads,
                                                          std::int64_t kv_heads) {
  static const auto handle = find<decltype(meta::rope_split)>("tailor::rope_split");
  check(Op::rope_split, std::array{given(qkv), given(cos), given(sin)}, Type::any,
        {{"n", batch * (cos.dim() == 2 ? cos.size(0) : 0)},
         {"w", (heads + 2 * kv_heads) * 2 * (cos.dim() == 2 ? cos.size(1) : 0)}});
  return handle.call(qkv, cos, sin, batch, heads, kv_heads);
}
at::Tensor rope_merge(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& cos, const at::Tensor& sin) {
  static const auto handle = find<decltype(meta::rope_merge)>("tailor::rope_merge");
  check(Op::rope_merge, std::array{given(q), given(k), given(v), given(cos), given(sin)});
  return handle.call(q, k, v, cos, sin);
}
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, double scale,
                          bool with_grad, double z_loss) {
  static const auto handle = find<decltype(meta::cross_entropy_)>("tailor::cross_entropy_");
  check(Op::cross_entropy_, std::array{given(logits), given(targets)});
  return handle.call(logits, targets, scale, with_grad, z_loss);
}
at::Tensor sum_squares(const at::Tensor& x) {
  static const auto handle = find<decltype(meta::sum_squares)>("tailor::sum_squares");
  check(Op::sum_squares, std::array{given(x)});
  return handle.call(x);
}
void adamw_(at::Tensor& w, const at::Tensor& g, at::Tensor& m, at::Tensor& v,
            const std::optional<at::Tensor>& low, double lr, double beta1, double beta2, double eps,
            double decay, double gradient_scale, std::int64_t t) {
  static const auto handle = find<void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&,
                                       const std::optional<at::Tensor>&, double, double, double,
                                       double, double, double, std::int64_t)>("tailor::adamw_");
  check(Op::adamw_, std::array{given(w), given(g), given(m), given(v), given(low)});
  handle.call(w, g, m, v, low, lr, beta1, beta2, eps, decay, gradient_scale, t);
}
void embed_backward_(at::Tensor& sum, const at::Tensor& grad, const at::Tensor& tokens) {
  static const auto handle =
      find<void(at::Tensor&, const at::Tensor&, const at::Tensor&)>("tailor::embed_backward_");
  check(Op::embed_backward_, std::array{given(sum), given(grad), given(tokens)});
  handle.call(sum, grad, tokens);
}

}  // namespace op

at::Tensor sum_squares(const at::Tensor& x) { return op::sum_squares(x); }

}  // namespace tailor::kernels
