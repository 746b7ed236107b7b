// Matrix products without autograd: what linear.cc and autograd.cc share. See linear.h for bf16 on
// a CPU. Operands have one type, but where `widened` holds `g` may be fp32 while the others are
// bf16. Outputs may be fp32 where operands are bf16.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tailor::kernels {

/// True if products of `x` are made in fp32: bf16 on a CPU that does not multiply bf16 itself.
bool widened(const at::Tensor& x);

/// out_nm = a_nk b_km, or out_nm += a_nk b_km with `add`.
void multiply_into(at::Tensor& out_nm, const at::Tensor& a_nk, const at::Tensor& b_km, bool add);

/// op::product_ on a CPU.
void product_cpu(at::Tensor& out_nm, const std::optional<at::Tensor>& base_nm,
                 const at::Tensor& a_nk, const at::Tensor& b_km);

/// out_nm = base_nm + a_nk b_km; `out` and `base` have one type and do not overlap.
void add_product(at::Tensor& out_nm, const at::Tensor& base_nm, const at::Tensor& a_nk,
                 const at::Tensor& b_km);

/// out_mk += g_nm^T x_nk.
void add_outer(at::Tensor& out_mk, const at::Tensor& g_nm, const at::Tensor& x_nk);

/// gx_nk = g_nm w_mk and gw_mk += g_nm^T x_nk in one pass over g. `gx` undefined: only the latter.
void multiply_backward(at::Tensor& gx_nk, at::Tensor& gw_mk, const at::Tensor& g_nm,
                       const at::Tensor& x_nk, const at::Tensor& w_mk);

}  // namespace tailor::kernels
