#include "worker/trainer/inspect.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "geometry/npy.h"
#include "model/pretrained/model.h"
#include "model/train/clouds.h"
#include "protocol/report.h"
#include "worker/trainer/device.h"

namespace tailor::trainer {
namespace {

// "all" or a list with commas; empty = all.
Result<std::vector<std::int32_t>> parse_layers(std::string_view text) {
  std::vector<std::int32_t> layers;
  if (text == "all") return layers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    std::int32_t layer = -1;
    const auto [next, failure] = std::from_chars(at, end, layer);
    if (failure != std::errc() || layer < 0 || (next != end && *next != ',')) {
      return error(
          Code::kInvalidArgument,
          fmt::format("--layers is \"{}\"; allowed: \"all\" or numbers from 0 with commas", text));
    }
    layers.push_back(layer);
    if (next == end) return layers;
    at = next + 1;
  }
}

// (B, T) tokens that the model knows.
Result<at::Tensor> read_tokens(const std::string& path, std::int64_t vocabulary) {
  TAILOR_ASSIGN_OR_RETURN(const geometry::NpyArray array, geometry::read_npy(path));
  const auto ids = array.to_integers();
  const std::size_t rank = array.shape.size();
  if (!ids || (rank != 1 && rank != 2) || array.size() == 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("{}: tokens are integers of shape (T) or (B, T), at least one", path));
  }
  for (std::size_t i = 0; i < ids->size(); ++i) {
    if ((*ids)[i] >= 0 && (*ids)[i] < vocabulary) continue;
    return error(Code::kInvalidArgument,
                 fmt::format("{}: token {} at place {}; the model has tokens 0 to {}", path,
                             (*ids)[i], i, vocabulary - 1));
  }
  const auto time = static_cast<std::int64_t>(array.shape.back());
  at::Tensor tokens = at::empty({static_cast<std::int64_t>(ids->size()) / time, time}, at::kLong);
  std::memcpy(tokens.mutable_data_ptr(), ids->data(), ids->size() * sizeof(std::int64_t));
  return tokens;
}

geometry::NpyArray float_array(const std::vector<float>& values, std::vector<std::size_t> shape) {
  geometry::NpyArray array;
  array.type = geometry::NpyType::kF4;
  array.shape = std::move(shape);
  array.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return array;
}

// The row of the tokens that every point of a cloud comes from.
geometry::NpyArray sequence_array(std::int64_t rows, std::int64_t points_of_row) {
  std::vector<std::int64_t> ids;
  for (std::int64_t b = 0; b < rows; ++b)
    ids.insert(ids.end(), static_cast<std::size_t>(points_of_row), b);
  geometry::NpyArray array;
  array.type = geometry::NpyType::kI8;
  array.shape = {ids.size()};
  array.bytes.assign(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int64_t));
  return array;
}

struct Opened {
  std::unique_ptr<net::Decoder> decoder;
  at::Tensor tokens;
};

Result<Opened> open(const InspectOptions& options) {
  if (options.threads < 1) return error(Code::kInvalidArgument, "--threads must be at least 1");
  at::set_num_threads(options.threads);
  TAILOR_ASSIGN_OR_RETURN(const OpenDevice device, open_device(options.device));
  Opened out;
  TAILOR_ASSIGN_OR_RETURN(out.decoder,
                          pretrained::load_model(options.model, device.device, options.bf16));
  TAILOR_ASSIGN_OR_RETURN(out.tokens, read_tokens(options.tokens, out.decoder->form().vocab_size));
  return out;
}

Status write_logits(const InspectOptions& options) {
  const c10::NoGradGuard no_grad;
  TAILOR_ASSIGN_OR_RETURN(const Opened model, open(options));
  const std::int64_t batch = model.tokens.size(0);
  const std::int64_t time = model.tokens.size(1);
  const std::int64_t vocabulary = model.decoder->form().vocab_size;
  geometry::NpyArray array;
  array.type = geometry::NpyType::kF4;
  array.shape = {static_cast<std::size_t>(batch), static_cast<std::size_t>(time),
                 static_cast<std::size_t>(vocabulary)};
  array.bytes.reserve(static_cast<std::size_t>(model.tokens.numel() * vocabulary) * sizeof(float));
  for (std::int64_t b = 0; b < batch; ++b) {
    const at::Tensor logits =
        model.decoder->logits(model.tokens.narrow(0, b, 1).to(model.decoder->device()))
            .to(at::kCPU, at::kFloat)
            .contiguous();
    array.bytes.append(reinterpret_cast<const char*>(logits.const_data_ptr<float>()),
                       logits.nbytes());
  }
  return geometry::write_npy(options.out, array);
}

Status write_clouds(const InspectOptions& options) {
  TAILOR_ASSIGN_OR_RETURN(const std::vector<std::int32_t> layers, parse_layers(options.layers));
  TAILOR_ASSIGN_OR_RETURN(const Opened model, open(options));
  const std::int64_t time = model.tokens.size(1);
  if (options.skip < 0 || options.skip >= time) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--skip is {}; allowed: 0 to {}", options.skip, time - 1));
  }
  TAILOR_ASSIGN_OR_RETURN(std::vector<train::LayerRows> clouds,
                          train::empty_clouds(model.decoder->form(), layers, options.sub_blocks));
  const at::Tensor rows = at::arange(options.skip, time, at::kLong);
  for (std::int64_t b = 0; b < model.tokens.size(0); ++b) {
    train::append_clouds(*model.decoder, model.tokens.narrow(0, b, 1), rows, clouds);
  }
  std::error_code failure;
  std::filesystem::create_directories(options.out, failure);
  if (failure) return errno_status(failure.value(), "create", options.out);
  TAILOR_RETURN_IF_ERROR(geometry::write_npy(options.out + "/sequences.npy",
                                             sequence_array(model.tokens.size(0), rows.numel())));
  const auto d = static_cast<std::size_t>(model.decoder->form().d_model);
  for (const train::LayerRows& cloud : clouds) {
    const std::string name =
        cloud.sub_block < 0
            ? fmt::format("{}/layer_{}", options.out, cloud.layer)
            : fmt::format("{}/layer_{}_sub_{}", options.out, cloud.layer, cloud.sub_block);
    const std::vector<std::size_t> shape{cloud.before.size() / d, d};
    TAILOR_RETURN_IF_ERROR(
        geometry::write_npy(name + "_before.npy", float_array(cloud.before, shape)));
    TAILOR_RETURN_IF_ERROR(
        geometry::write_npy(name + "_after.npy", float_array(cloud.after, shape)));
  }
  return Status::ok();
}

int exit_of(const Status& status, const char* command) {
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "tailor-trainer %s: %s\n", command, status.message().c_str());
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnimplemented:  // sound, but of a kind that is not read
      return static_cast<int>(protocol::TrainerExit::kUsage);
    case Code::kResourceExhausted:
      return static_cast<int>(protocol::TrainerExit::kOom);
    case Code::kDataLoss:
      return static_cast<int>(protocol::TrainerExit::kData);
    default:
      return static_cast<int>(protocol::TrainerExit::kInfrastructure);
  }
}

// What LibTorch and the standard library throw, as a Status.
template <typename Work>
Status guarded(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "out of memory; give fewer or shorter sequences");
  } catch (const std::exception& failure) {
    return Status(Code::kInternal, failure.what());
  }
}

}  // namespace

int run_logits(const InspectOptions& options) {
  return exit_of(guarded([&] { return write_logits(options); }), "logits");
}

int run_clouds(const InspectOptions& options) {
  return exit_of(guarded([&] { return write_clouds(options); }), "clouds");
}

}  // namespace tailor::trainer
