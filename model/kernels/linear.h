// Products with a weight matrix and look-ups in one, differentiable, whose weight gradients are
// added where they are kept: no temporary, no pass that adds.
//
//   y = x W^T,   y = x0 + x W^T,   y = E[tokens];   backward: gx = g W,  W.grad += g^T x
//
// A weight is two tensors. `weight` is the fp32 leaf of autograd; if its .grad is there (same
// shape), backward adds to it in place and hands autograd nothing, else the gradient goes the usual
// way. `working` holds the values that are multiplied: the same tensor, or a bf16 copy of it.
//
// bf16 on a CPU. Products of bf16 values are exact in fp32, so there are two ways to the same sum:
// the CPU's bf16 instructions through LibTorch, or fp32 products of widened values, in blocks of
// rows that stay in its cache. Which is faster is a matter of the CPU: Intel's cores without AMX
// multiply bf16 no faster than fp32, and CPUs without bf16 instructions emulate them.
// `cpu_multiplies_bf16` says which way is taken.
#pragma once

#include <ATen/core/Tensor.h>

namespace tailor::kernels {

/// y_nm = x_nk W_mk^T in the type of `working`; x is rounded to that type first.
at::Tensor linear(const at::Tensor& x_nk, const at::Tensor& weight_mk, const at::Tensor& working);

/// The same in fp32 where bf16 values are multiplied in fp32, so that what comes behind (attention)
/// makes its own products in fp32 too.
at::Tensor linear_widened(const at::Tensor& x_nk, const at::Tensor& weight_mk,
                          const at::Tensor& working);

/// base_nm + x_nk W_mk^T in the type of `base`; x is rounded to the type of `working` first.
at::Tensor linear_onto(const at::Tensor& base_nm, const at::Tensor& x_nk,
                       const at::Tensor& weight_mk, const at::Tensor& working);

/// Rows of `weight_vd`: (n) int64 -> (n, d).
at::Tensor embed(const at::Tensor& tokens_n, const at::Tensor& weight_vd);

/// True if bf16 products on this CPU use its bf16 instructions, false if they are made in fp32.
/// The same answer on every call and for every process of one machine.
bool cpu_multiplies_bf16();

/// Changes that answer while it lives, so that a test runs both ways on one machine. Threads: not
/// while products are made.
class Bf16ProductsAs {
 public:
  explicit Bf16ProductsAs(bool multiplied);
  ~Bf16ProductsAs();
  Bf16ProductsAs(const Bf16ProductsAs&) = delete;
  Bf16ProductsAs& operator=(const Bf16ProductsAs&) = delete;

 private:
  int before_;
};

}  // namespace tailor::kernels
