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

constexpr std::int64_t kStagedElements = 1 << 22;  // on the way to a GPU: 16 MiB

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

void ParameterSet::allocate(at::Device device, bool bf16) {
  TAILOR_CHECK(!flat_.defined());
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  flat_ = at::zeros({size()}, options);
  gradient_ = at::zeros({size()}, options);
  if (bf16) {
    low_ = at::zeros({matrix_size_}, options.dtype(at::kBFloat16));
  }
  const auto view_of = [](const at::Tensor& buffer, const Parameter& parameter) {
    const Part& first = parameter.parts.front();
    const std::int64_t count = parameter.rows * std::max<std::int64_t>(1, parameter.cols);
    std::vector<std::int64_t> shape{parameter.rows};
    if (parameter.cols > 0) shape.push_back(parameter.cols);
    return buffer.narrow(0, first.offset, count).view(shape);
  };
  for (Parameter& parameter : vectors_) {
    for (Part& part : parameter.parts) part.offset += matrix_size_;
  }
  for_each([&](Parameter& parameter) {
    parameter.master = view_of(flat_, parameter).set_requires_grad(true);
    parameter.master.mutable_grad() = view_of(gradient_, parameter);
    parameter.compute = bf16 && parameter.cols > 0 ? view_of(low_, parameter) : parameter.master;
  });
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
    const std::string name = prefix + part->name;
    const pretrained::SourceTensor* found = source.find(name);
    if (found == nullptr) {
      return Status(Code::kDataLoss, fmt::format("{} has no tensor {}", source.path(), name));
    }
    if (found->shape != part->shape()) {
      return Status(
          Code::kDataLoss,
          fmt::format("{}: tensor {} has shape [{}], this network needs [{}]", source.path(), name,
                      fmt::join(found->shape, ", "), fmt::join(part->shape(), ", ")));
    }
    at::Tensor slice = buffer.narrow(0, part->offset, part->size());
    // On a CPU straight into its place; for a GPU through rows of host memory.
    at::Tensor host = slice.is_cpu() ? slice : at::Tensor();
    const std::int64_t columns =
        std::max<std::int64_t>(1, part->cols > 0 ? part->cols : part->rows);
    const std::int64_t rows = std::max<std::int64_t>(1, kStagedElements / columns);
    if (!host.defined()) {
      host = at::empty({std::min(part->size(), rows * columns)},
                       at::TensorOptions().dtype(at::kFloat));
    }
    const std::int64_t step = host.numel();
    for (std::int64_t first = 0; first < part->size(); first += step) {
      const std::int64_t count = std::min(step, part->size() - first);
      TAILOR_RETURN_IF_ERROR(source.read(
          name, first, {host.mutable_data_ptr<float>(), static_cast<std::size_t>(count)}));
      if (!slice.is_cpu()) slice.narrow(0, first, count).copy_(host.narrow(0, 0, count));
    }
  }
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
