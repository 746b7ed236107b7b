#include "model/net/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace tailor::net {
namespace {

constexpr std::int64_t kStagedElements = 1 << 22;  // on the way to a GPU or to bf16: 16 MiB

// Fills `slice`, where `part` is kept, from tensor `name`.
Status fill(const pretrained::TensorSource& source, const std::string& name, const Part& part,
            at::Tensor slice) {
  const pretrained::SourceTensor* found = source.find(name);
  if (found == nullptr) {
    return Status(Code::kDataLoss, fmt::format("{} has no tensor {}", source.path(), name));
  }
  if (found->shape != part.shape()) {
    return Status(
        Code::kDataLoss,
        fmt::format("{}: tensor {} has shape [{}], this network needs [{}]", source.path(), name,
                    fmt::join(found->shape, ", "), fmt::join(part.shape(), ", ")));
  }
  // On a CPU in fp32 straight into its place, else through some rows in host memory.
  const bool direct = slice.is_cpu() && slice.scalar_type() == at::kFloat;
  const std::int64_t columns = part.cols > 0 ? part.cols : part.rows;
  const std::int64_t rows = std::max<std::int64_t>(1, kStagedElements / columns);
  at::Tensor host = direct ? slice
                           : at::empty({std::min(part.size(), rows * columns)},
                                       at::TensorOptions().dtype(at::kFloat));
  const std::int64_t step = host.numel();
  for (std::int64_t first = 0; first < part.size(); first += step) {
    const std::int64_t count = std::min(step, part.size() - first);
    TAILOR_RETURN_IF_ERROR(source.read(
        name, first, {host.mutable_data_ptr<float>(), static_cast<std::size_t>(count)}));
    if (!direct) slice.narrow(0, first, count).copy_(host.narrow(0, 0, count));
  }
  return Status::ok();
}

}  // namespace

const Parameter& ParameterSet::add_matrix(std::vector<Part> parts, std::int64_t cols) {
  TAILOR_CHECK(!flat_.defined() && !parts.empty() && cols > 0);
  Parameter parameter;
  parameter.cols = cols;
  for (Part& part : parts) {
    part.cols = cols;
    part.offset = matrix_size_ + parameter.rows * cols;
    parameter.rows += part.rows;
  }
  matrix_size_ += parameter.rows * cols;
  parameter.parts = std::move(parts);
  return matrices_.emplace_back(std::move(parameter));
}

const Parameter& ParameterSet::add_vector(std::string name, std::string key, std::int64_t size) {
  TAILOR_CHECK(!flat_.defined() && size > 0);
  Parameter parameter;
  parameter.rows = size;
  parameter.parts.push_back(
      Part{std::move(name), std::move(key), Init::kOnes, size, 0, vector_size_});
  vector_size_ += size;
  return vectors_.emplace_back(std::move(parameter));
}

void ParameterSet::allocate(at::Device device, bool bf16, Use use) {
  TAILOR_CHECK(!flat_.defined());
  const bool train = use == Use::kTraining;
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  if (bf16) low_ = at::zeros({matrix_size_}, options.dtype(at::kBFloat16));
  // For inference in bf16 only the gains are fp32.
  vectors_begin_ = bf16 && !train ? 0 : matrix_size_;
  flat_ = at::zeros({vectors_begin_ + vector_size_}, options);
  if (train) gradient_ = at::zeros({size()}, options);
  const auto view_of = [](const at::Tensor& buffer, std::int64_t offset,
                          const Parameter& parameter) {
    std::vector<std::int64_t> shape{parameter.rows};
    if (parameter.cols > 0) shape.push_back(parameter.cols);
    return buffer.narrow(0, offset, parameter.rows * std::max<std::int64_t>(1, parameter.cols))
        .view(shape);
  };
  for (Parameter& parameter : vectors_) {
    for (Part& part : parameter.parts) part.offset += matrix_size_;
  }
  for_each([&](Parameter& parameter) {
    const bool matrix = parameter.cols > 0;
    const std::int64_t offset = parameter.parts.front().offset;
    if (matrix && bf16) parameter.compute = view_of(low_, offset, parameter);
    if (matrix && bf16 && !train) {
      parameter.master = parameter.compute;
      return;
    }
    parameter.master = view_of(flat_, offset - (matrix_size_ - vectors_begin_), parameter);
    if (train) {
      parameter.master.set_requires_grad(true);
      parameter.master.mutable_grad() = view_of(gradient_, offset, parameter);
    }
    if (!parameter.compute.defined()) parameter.compute = parameter.master;
  });
}

at::Tensor ParameterSet::storage_of(const Part& part) const {
  if (part.cols > 0 && vectors_begin_ == 0 && matrix_size_ > 0) {
    return low_.narrow(0, part.offset, part.size());
  }
  const std::int64_t gap = matrix_size_ - vectors_begin_;
  return flat_.narrow(0, part.offset - gap, part.size());
}

void ParameterSet::for_each(const std::function<void(Parameter&)>& visit) {
  for (Parameter& parameter : matrices_) visit(parameter);
  for (Parameter& parameter : vectors_) visit(parameter);
}

std::vector<const Part*> ParameterSet::parts() const {
  std::vector<const Part*> all;
  for (const Parameter& parameter : matrices_) {
    for (const Part& part : parameter.parts) all.push_back(&part);
  }
  for (const Parameter& parameter : vectors_) {
    for (const Part& part : parameter.parts) all.push_back(&part);
  }
  return all;
}

std::vector<const Parameter*> ParameterSet::parameters() const {
  std::vector<const Parameter*> all;
  for (const Parameter& parameter : matrices_) all.push_back(&parameter);
  for (const Parameter& parameter : vectors_) all.push_back(&parameter);
  return all;
}

void ParameterSet::initialise(std::uint64_t seed, const InitialScale& scale_of,
                              double residual_scale) {
  at::Tensor values = at::empty({size()}, at::kFloat);
  auto* data = values.mutable_data_ptr<float>();
  for (const Part* part : parts()) {
    float* to = data + part->offset;
    if (part->init == Init::kOnes) {
      std::fill_n(to, part->size(), static_cast<float>(scale_of(*part)));
      continue;
    }
    const std::uint64_t key = stable_hash(part->key, seed);
    const double scale =
        part->init == Init::kResidual ? scale_of(*part) * residual_scale : scale_of(*part);
    at::parallel_for(0, part->rows, std::max<std::int64_t>(1, 4096 / part->cols),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t row = begin; row < end; ++row) {
                         for (std::int64_t col = 0; col < part->cols; ++col) {
                           to[row * part->cols + col] = static_cast<float>(
                               scale * keyed_normal(key, static_cast<std::uint64_t>(row),
                                                    static_cast<std::uint64_t>(col)));
                         }
                       }
                     });
  }
  flat_.copy_(values);
  refresh();
}

void ParameterSet::initialise(std::uint64_t seed, double std, double residual_scale) {
  initialise(
      seed, [std](const Part& part) { return part.init == Init::kOnes ? 1.0 : std; },
      residual_scale);
}

void ParameterSet::zero_gradient() { gradient_.zero_(); }

void ParameterSet::refresh() {
  if (low_.defined()) low_.copy_(flat_.narrow(0, 0, matrix_size_));
}

std::vector<pretrained::TensorData> ParameterSet::describe(const at::Tensor& buffer,
                                                           const std::string& prefix) const {
  TAILOR_CHECK(buffer.device().is_cpu() && buffer.scalar_type() == at::kFloat &&
               buffer.is_contiguous() && buffer.numel() == size());
  std::vector<pretrained::TensorData> all;
  for (const Part* part : parts()) {
    all.push_back({prefix + part->name, pretrained::DType::kF32, part->shape(),
                   buffer.const_data_ptr<float>() + part->offset});
  }
  return all;
}

Status ParameterSet::load(const pretrained::TensorSource& source, const std::string& prefix,
                          at::Tensor buffer) {
  for (const Part* part : parts()) {
    TAILOR_RETURN_IF_ERROR(
        fill(source, prefix + part->name, *part, buffer.narrow(0, part->offset, part->size())));
  }
  return Status::ok();
}

Status ParameterSet::load_weights(const pretrained::TensorSource& source,
                                  const std::function<std::string(const Part&)>& stored_name) {
  for (const Part* part : parts()) {
    TAILOR_RETURN_IF_ERROR(fill(source, stored_name(*part), *part, storage_of(*part)));
  }
  if (vectors_begin_ == matrix_size_) refresh();
  return Status::ok();
}

std::optional<std::string> ParameterSet::first_nonfinite(const at::Tensor& buffer) const {
  for (const Part* part : parts()) {
    // x - x is 0 for finite numbers, NaN otherwise.
    const at::Tensor slice = buffer.narrow(0, part->offset, part->size());
    if ((slice - slice).ne(0).any().item<bool>()) return part->name;
  }
  return std::nullopt;
}

}  // namespace tailor::net
