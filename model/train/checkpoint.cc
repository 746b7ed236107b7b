#include "model/train/checkpoint.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "model/pretrained/safetensors.h"

namespace tailor::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr std::size_t kKept = 2;
constexpr std::uint64_t kJsonBytesMax = 1 << 20;
constexpr std::string_view kTemporary = ".partial-";

std::string folder_name(std::int64_t step) { return fmt::format("{:09}", step); }

// The step that a folder name stands for; nullopt for temporary and foreign names.
std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (failure != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

// Checkpoint folders in `folder`, newest first; empty when it cannot be read.
std::vector<std::pair<std::int64_t, std::string>> list(const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (const auto step = step_of(it->path().filename().string())) {
      found.emplace_back(*step, it->path().string());
    }
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  return found;
}

Status damaged(const std::string& path, std::string_view what) {
  return Status(Code::kDataLoss, fmt::format("{}: {}", path, what));
}

Result<json> read_json(const std::string& path) {
  auto text = read_file(path, kJsonBytesMax);
  if (!text) {
    return error(text.error().code() == Code::kNotFound ? damaged(path, "missing") : text.error());
  }
  json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return error(damaged(path, "not JSON: cut or altered"));
  return value;
}

std::string state_json(const CheckpointState& state) {
  const json value = {{"step", state.step},
                      {"tokens", state.tokens},
                      {"next_sample", state.next_sample},
                      {"train_loss", state.train_loss},
                      {"identity", state.identity}};
  return value.dump(1) + "\n";
}

Result<CheckpointState> parse_state(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const json value, read_json(path));
  try {
    CheckpointState state;
    state.step = value.at("step").get<std::int64_t>();
    state.tokens = value.at("tokens").get<std::int64_t>();
    state.next_sample = value.at("next_sample").get<std::uint64_t>();
    // JSON has no NaN; a loss that was one is null.
    if (value.at("train_loss").is_number()) state.train_loss = value.at("train_loss").get<double>();
    state.identity = value.at("identity").get<std::string>();
    return state;
  } catch (const json::exception& failure) {
    return error(damaged(path, failure.what()));
  }
}

}  // namespace

std::string trial_identity(const protocol::TrialSpec& spec, const std::string& data_hash) {
  const protocol::TrainSpec& train = spec.train;
  const protocol::OptimizerSpec& adam = train.optimizer;
  // Numbers in their shortest form that reads back to the same value.
  return sha256_hex(fmt::format(
      "{}\nseed {} data {} sequence {}\ntokens {} batch {} micro {} bf16 {} init {}\n"
      "adamw {} {} {} {} {} {}\nschedule {} {} {} {}\n",
      shape::canonical_json(spec.architecture), spec.seed, data_hash, spec.data.sequence_length,
      train.tokens, train.batch_tokens, train.micro_batch_tokens,
      train.precision == protocol::Precision::kBf16, train.init_std, adam.lr, adam.beta1,
      adam.beta2, adam.eps, adam.weight_decay, adam.clip, static_cast<int>(train.schedule.kind),
      train.schedule.warmup_fraction, train.schedule.warmup_steps, train.schedule.final_fraction));
}

Result<CheckpointInfo> save_checkpoint(const std::string& folder, const CheckpointState& state,
                                       const net::Decoder& decoder, AdamW& optimizer) {
  const std::string path = folder + "/" + folder_name(state.step);
  std::error_code failure;
  if (fs::exists(path, failure)) {
    auto there = verify_checkpoint(path);
    if (there && there->state.identity == state.identity) return there;
    fs::remove_all(path, failure);
  }
  const std::string temporary = folder + "/" + std::string(kTemporary) + folder_name(state.step);
  fs::remove_all(temporary, failure);
  fs::create_directories(temporary, failure);
  if (failure) return error(errno_status(failure.value(), "create", temporary));

  const auto write = [&]() -> Status {
    const c10::NoGradGuard no_grad;
    const net::ParameterSet& parameters = decoder.parameters();
    const at::Tensor weights = parameters.flat().to(at::kCPU);
    const at::Tensor m = optimizer.first_moment().to(at::kCPU);
    const at::Tensor v = optimizer.second_moment().to(at::kCPU);
    json files = json::object();
    const auto note = [&](const char* name, std::int64_t bytes, const std::string& sha256) {
      files[name] = {{"bytes", bytes}, {"sha256", sha256}};
    };
    TAILOR_ASSIGN_OR_RETURN(
        const pretrained::WrittenFile model,
        pretrained::write_safetensors(temporary + "/model.safetensors",
                                      parameters.describe(weights, ""), {{"format", "pt"}}));
    note("model.safetensors", model.bytes, model.sha256);
    std::vector<pretrained::TensorData> moments = parameters.describe(m, "exp_avg.");
    for (pretrained::TensorData& tensor : parameters.describe(v, "exp_avg_sq.")) {
      moments.push_back(std::move(tensor));
    }
    TAILOR_ASSIGN_OR_RETURN(
        const pretrained::WrittenFile moment_file,
        pretrained::write_safetensors(temporary + "/optimizer.safetensors", moments));
    note("optimizer.safetensors", moment_file.bytes, moment_file.sha256);
    const std::string text = state_json(state);
    TAILOR_RETURN_IF_ERROR(write_file_atomic(temporary + "/state.json", text));
    note("state.json", static_cast<std::int64_t>(text.size()), sha256_hex(text));
    const json manifest = {
        {"format", "tailor-checkpoint"}, {"version", kFormatVersion}, {"files", files}};
    TAILOR_RETURN_IF_ERROR(
        write_file_atomic(temporary + "/manifest.json", manifest.dump(1) + "\n"));
    return sync_directory(temporary);
  };
  if (const Status status = write(); !status) {
    fs::remove_all(temporary, failure);
    return error(status.with_context("the checkpoint was not saved"));
  }
  fs::rename(temporary, path, failure);
  if (failure) return error(errno_status(failure.value(), "rename", temporary));
  TAILOR_RETURN_IF_ERROR(sync_directory(folder));
  TAILOR_ASSIGN_OR_RETURN(CheckpointInfo saved, verify_checkpoint(path));
  const auto all = list(folder);
  for (std::size_t i = kKept; i < all.size(); ++i) fs::remove_all(all[i].second, failure);
  return saved;
}

Result<CheckpointInfo> verify_checkpoint(const std::string& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) {
    return error(Code::kNotFound, fmt::format("{} is no checkpoint folder", path));
  }
  CheckpointInfo info;
  info.path = path;
  const std::string manifest_path = path + "/manifest.json";
  TAILOR_ASSIGN_OR_RETURN(const json manifest, read_json(manifest_path));
  TAILOR_ASSIGN_OR_RETURN(info.manifest_sha256, sha256_file(manifest_path));
  try {
    if (manifest.at("format") != "tailor-checkpoint")
      return error(damaged(manifest_path, "another format"));
    if (manifest.at("version").get<int>() > kFormatVersion) {
      return error(Code::kUnimplemented,
                   fmt::format("{} was written by a newer version of Tailor", manifest_path));
    }
    const json& files = manifest.at("files");
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
      const json& entry = files.at(name);
      const std::string file = path + "/" + name;
      const auto wanted = entry.at("bytes").get<std::int64_t>();
      const auto size = fs::file_size(file, failure);
      if (failure) return error(damaged(file, "missing"));
      if (static_cast<std::int64_t>(size) != wanted) {
        return error(damaged(
            file,
            fmt::format("{} bytes, its manifest says {}: it is cut or altered", size, wanted)));
      }
      TAILOR_ASSIGN_OR_RETURN(const std::string hash, sha256_file(file));
      if (hash != entry.at("sha256").get<std::string>()) {
        return error(damaged(file, "its SHA-256 is not the one in its manifest: it is altered"));
      }
      info.bytes += wanted;
    }
  } catch (const json::exception& failed) {
    return error(damaged(manifest_path, failed.what()));
  }
  TAILOR_ASSIGN_OR_RETURN(info.state, parse_state(path + "/state.json"));
  return info;
}

std::optional<CheckpointInfo> newest_checkpoint(const std::vector<std::string>& folders,
                                                const std::string& identity,
                                                const SkippedCheckpoint& skipped) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const std::string& folder : folders) {
    const auto found = list(folder);
    all.insert(all.end(), found.begin(), found.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [step, path] : all) {
    auto info = verify_checkpoint(path);
    if (!info) {
      skipped(path, info.error());
    } else if (info->state.identity != identity) {
      skipped(path,
              Status(Code::kFailedPrecondition,
                     path + " belongs to another trial (shape, recipe, seed or data differ)"));
    } else {
      return *info;
    }
  }
  return std::nullopt;
}

Status load_checkpoint(const CheckpointInfo& checkpoint, net::Decoder& decoder, AdamW& optimizer) {
  const c10::NoGradGuard no_grad;
  net::ParameterSet& parameters = decoder.parameters();
  TAILOR_ASSIGN_OR_RETURN(
      const auto model, pretrained::SafetensorsFile::open(checkpoint.path + "/model.safetensors"));
  TAILOR_RETURN_IF_ERROR(parameters.load(model, "", parameters.flat()));
  TAILOR_ASSIGN_OR_RETURN(const auto moments, pretrained::SafetensorsFile::open(
                                                  checkpoint.path + "/optimizer.safetensors"));
  TAILOR_RETURN_IF_ERROR(parameters.load(moments, "exp_avg.", optimizer.first_moment()));
  TAILOR_RETURN_IF_ERROR(parameters.load(moments, "exp_avg_sq.", optimizer.second_moment()));
  optimizer.set_steps(checkpoint.state.step);
  parameters.refresh();
  return Status::ok();
}

}  // namespace tailor::train
