#include "model/kernels/products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>

#include "model/kernels/cpu_loops.h"
#include "model/kernels/linear.h"
#include "model/kernels/ops.h"

namespace tailor::kernels {
namespace {

// Rows that are widened at once. The fewer, the more of them stay in cache; but each block packs
// the other factor anew, and in a weight gradient passes over the sum once more.
constexpr std::int64_t kBlockRows = 512;
constexpr std::int64_t kOuterBlockRows = 1024;
// Values below which a second thread costs more than it gives.
constexpr std::int64_t kConvertedPerTask = 65536;

int multiplied_as = -1;  // Bf16ProductsAs: 0 or 1; -1 = as the CPU says

bool find_whether_cpu_multiplies_bf16() {
#ifdef __x86_64__
  __builtin_cpu_init();
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool amx_bf16 = ((d >> 22) & 1) != 0;
  if (__builtin_cpu_is("intel")) return amx_bf16;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && ((a >> 5) & 1) != 0;  // AVX512_BF16
#else
  return true;
#endif
}

const std::uint16_t* bits(const at::Tensor& x) {
  return reinterpret_cast<const std::uint16_t*>(x.const_data_ptr<c10::BFloat16>());
}

// `from` (contiguous) in fp32: itself, or its bf16 values in the first rows of `to`.
at::Tensor widen(const at::Tensor& from, at::Tensor& to) {
  if (from.scalar_type() == at::kFloat) return from;
  at::Tensor wide = to.narrow(0, 0, from.size(0));
  auto* out = wide.mutable_data_ptr<float>();
  const std::uint16_t* in = bits(from);
  at::parallel_for(0, from.numel(), kConvertedPerTask, [&](std::int64_t begin, std::int64_t end) {
    cpu_loops().widen(in + begin, end - begin, out + begin);
  });
  return wide;
}

void narrow(const at::Tensor& from, at::Tensor to) {
  auto* out = reinterpret_cast<std::uint16_t*>(to.mutable_data_ptr<c10::BFloat16>());
  const auto* in = from.const_data_ptr<float>();
  at::parallel_for(0, from.numel(), kConvertedPerTask, [&](std::int64_t begin, std::int64_t end) {
    cpu_loops().narrow(in + begin, end - begin, out + begin);
  });
}

at::Tensor scratch(std::int64_t rows, std::int64_t columns) {
  return at::empty({rows, columns}, at::TensorOptions().dtype(at::kFloat));
}

// All of a bf16 matrix; a transposed one stays transposed.
at::Tensor widen_all(const at::Tensor& x) { return x.to(at::kFloat); }

void wide_product_block(const at::Tensor& a, const at::Tensor& b, at::Tensor out, bool add,
                        at::Tensor& out_scratch) {
  if (out.scalar_type() == at::kFloat) {
    add ? out.addmm_(a, b) : at::mm_out(out, a, b);
    return;
  }
  at::Tensor wide_out = out_scratch.narrow(0, 0, out.size(0));
  if (add) {
    widen(out, out_scratch);
    wide_out.addmm_(a, b);
  } else {
    at::mm_out(wide_out, a, b);
  }
  narrow(wide_out, out);
}

// fp32 sums of bf16 products: an operator, for a GPU adds them where they are made.
bool mixed(const at::Tensor& out, const at::Tensor& a) {
  return out.scalar_type() == at::kFloat && a.scalar_type() == at::kBFloat16;
}

// The products of blocks of widened rows.
void widened_product(at::Tensor& out_nm, const at::Tensor& a_nk, const at::Tensor& b_km, bool add) {
  const std::int64_t rows = a_nk.size(0);
  const std::int64_t block = std::min(kBlockRows, rows);
  const at::Tensor a = a_nk.contiguous();
  const at::Tensor b = widen_all(b_km);
  at::Tensor wide_a = scratch(block, a.size(1));
  at::Tensor wide_out;
  if (out_nm.scalar_type() != at::kFloat) wide_out = scratch(block, b.size(1));
  for (std::int64_t begin = 0; begin < rows; begin += block) {
    const std::int64_t count = std::min(block, rows - begin);
    wide_product_block(widen(a.narrow(0, begin, count), wide_a), b, out_nm.narrow(0, begin, count),
                       add, wide_out);
  }
}

}  // namespace

bool cpu_multiplies_bf16() {
  static const bool yes = find_whether_cpu_multiplies_bf16();
  return multiplied_as >= 0 ? multiplied_as == 1 : yes;
}

Bf16ProductsAs::Bf16ProductsAs(bool multiplied) : before_(multiplied_as) {
  multiplied_as = multiplied ? 1 : 0;
}
Bf16ProductsAs::~Bf16ProductsAs() { multiplied_as = before_; }

bool widened(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && x.is_cpu() && !cpu_multiplies_bf16();
}

void multiply_into(at::Tensor& out_nm, const at::Tensor& a_nk, const at::Tensor& b_km, bool add) {
  if (mixed(out_nm, a_nk)) {
    op::product_(out_nm, add ? std::optional<at::Tensor>(out_nm) : std::nullopt, a_nk, b_km);
  } else if (widened(a_nk)) {
    widened_product(out_nm, a_nk, b_km, add);
  } else if (out_nm.scalar_type() == a_nk.scalar_type()) {
    add ? out_nm.addmm_(a_nk, b_km) : at::mm_out(out_nm, a_nk, b_km);
  } else {
    const at::Tensor product = at::mm(a_nk, b_km);
    add ? out_nm.add_(product) : out_nm.copy_(product);
  }
}

void product_cpu(at::Tensor& out_nm, const std::optional<at::Tensor>& base_nm,
                 const at::Tensor& a_nk, const at::Tensor& b_km) {
  const bool add = base_nm && base_nm->defined();
  if (add && !base_nm->is_same(out_nm)) out_nm.copy_(*base_nm);
  if (widened(a_nk)) {
    widened_product(out_nm, a_nk, b_km, add);
    return;
  }
  const at::Tensor product = at::mm(a_nk, b_km);
  add ? out_nm.add_(product) : out_nm.copy_(product);
}

void add_product(at::Tensor& out_nm, const at::Tensor& base_nm, const at::Tensor& a_nk,
                 const at::Tensor& b_km) {
  if (mixed(out_nm, a_nk)) {
    op::product_(out_nm, base_nm, a_nk, b_km);
  } else {
    out_nm.copy_(base_nm);
    multiply_into(out_nm, a_nk, b_km, /*add=*/true);
  }
}

void add_outer(at::Tensor& out_mk, const at::Tensor& g_nm, const at::Tensor& x_nk) {
  at::Tensor none;
  multiply_backward(none, out_mk, g_nm, x_nk, at::Tensor());
}

void multiply_backward(at::Tensor& gx_nk, at::Tensor& gw_mk, const at::Tensor& g_nm,
                       const at::Tensor& x_nk, const at::Tensor& w_mk) {
  if (!widened(x_nk)) {
    if (gx_nk.defined()) multiply_into(gx_nk, g_nm, w_mk, /*add=*/false);
    multiply_into(gw_mk, g_nm.t(), x_nk, /*add=*/true);
    return;
  }
  const std::int64_t rows = g_nm.size(0);
  const std::int64_t block = std::min(kOuterBlockRows, rows);
  const at::Tensor g = g_nm.contiguous();
  const at::Tensor x = x_nk.contiguous();
  const at::Tensor w = gx_nk.defined() ? widen_all(w_mk) : at::Tensor();
  at::Tensor wide_g = scratch(g.scalar_type() == at::kFloat ? 0 : block, g.size(1));
  at::Tensor wide_x = scratch(block, x.size(1));
  at::Tensor wide_gw = gw_mk.scalar_type() == at::kFloat ? gw_mk : widen_all(gw_mk);
  for (std::int64_t begin = 0; begin < rows; begin += block) {
    const std::int64_t count = std::min(block, rows - begin);
    const at::Tensor g_b = widen(g.narrow(0, begin, count), wide_g);
    const at::Tensor x_b = widen(x.narrow(0, begin, count), wide_x);
    wide_gw.addmm_(g_b.t(), x_b);
    // x is done with: its memory takes the gradient.
    if (gx_nk.defined()) {
      wide_product_block(g_b, w, gx_nk.narrow(0, begin, count), /*add=*/false, wide_x);
    }
  }
  if (!wide_gw.is_same(gw_mk)) narrow(wide_gw, gw_mk);
}

}  // namespace tailor::kernels
