#include "model/train/checkpoint.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/pretrained/safetensors.h"

namespace tailor::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr std::uint64_t kJsonBytesMax = 1 << 20;
constexpr std::string_view kTemporary = ".partial-";
constexpr std::string_view kRemoved = ".removed-";

std::string folder_name(std::int64_t step) { return fmt::format("{:09}", step); }

// The step that a folder name stands for; nullopt for temporary and foreign names.
std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (failure != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

Status damaged(const std::string& path, std::string_view what) {
  return Status(Code::kDataLoss, fmt::format("{}: {}", path, what));
}

Result<json> read_json(const std::string& path) {
  auto text = read_file(path, kJsonBytesMax);
  if (!text) {
    return error(text.error().code() == Code::kNotFound ? damaged(path, "missing") : text.error());
  }
  auto value = parse_json(*text);
  if (!value) {
    return error(
        damaged(path, fmt::format("not JSON ({}): cut or altered", value.error().message())));
  }
  if (!value->is_object()) return error(damaged(path, "no JSON object: altered"));
  return value;
}

json number_or_null(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}

// What an earlier version did not write, and JSON's null for numbers that are not finite, are none.
std::optional<double> number_in(const json& value, const char* name) {
  const auto found = value.find(name);
  if (found == value.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string state_json(const CheckpointState& state) {
  const json value = {{"step", state.step},
                      {"tokens", state.tokens},
                      {"next_sample", state.next_sample},
                      {"train_loss", state.train_loss},
                      {"skipped", state.skipped},
                      {"validation_loss", number_or_null(state.validation_loss)},
                      {"best_validation_loss", number_or_null(state.best_validation_loss)},
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
    state.train_loss = number_in(value, "train_loss").value_or(0);
    state.skipped = value.value("skipped", std::int64_t{0});
    state.validation_loss = number_in(value, "validation_loss");
    state.best_validation_loss = number_in(value, "best_validation_loss");
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
  // Numbers in their shortest form that reads back to the same value. Not in here: micro-batches
  // and recomputation, which change the rounding at most, and what is reported and kept.
  std::string text = fmt::format(
      "{}\nseed {} data {} sequence {}\ntokens {} batch {} bf16 {} init {}\n"
      "adamw {} {} {} {} {} {}\nschedule {} {} {} {}\n",
      shape::canonical_json(spec.architecture), spec.seed, data_hash, spec.data.sequence_length,
      train.tokens, train.batch_tokens, train.precision == protocol::Precision::kBf16,
      train.init_std, adam.lr, adam.beta1, adam.beta2, adam.eps, adam.weight_decay, adam.clip,
      static_cast<int>(train.schedule.kind), train.schedule.warmup_fraction,
      train.schedule.warmup_steps, train.schedule.final_fraction);
  if (train.schedule.kind == protocol::LrScheduleKind::kWsd) {
    text += fmt::format("decay {} {}\n", train.schedule.decay_fraction,
                        static_cast<int>(train.schedule.decay_shape));
  }
  if (adam.lr_mode == protocol::LrMode::kMup) text += fmt::format("mup {}\n", adam.mup_base_width);
  if (train.down_init == protocol::DownInit::kFanIn) text += "down fan-in\n";
  if (train.z_loss != 0) text += fmt::format("z-loss {}\n", train.z_loss);
  return sha256_hex(text);
}

Result<Snapshot> take_snapshot(const CheckpointState& state, const net::Decoder& decoder,
                               AdamW& optimizer) {
  const c10::NoGradGuard no_grad;
  Snapshot snapshot;
  snapshot.state = state;
  snapshot.parameters = &decoder.parameters();
  const auto copy = [](const at::Tensor& from) {
    // Page-locked memory takes the copy from a GPU at full speed.
    at::Tensor to = at::empty(
        from.sizes(),
        at::TensorOptions().dtype(from.scalar_type()).pinned_memory(!from.device().is_cpu()));
    to.copy_(from);
    return to;
  };
  try {
    snapshot.weights = copy(decoder.parameters().flat());
    snapshot.m = copy(optimizer.first_moment());
    snapshot.v = copy(optimizer.second_moment());
  } catch (const c10::Error& failure) {
    return error(Code::kResourceExhausted,
                 fmt::format("no host memory for a checkpoint of {}: {}",
                             decoder.parameters().size(), failure.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return error(Code::kResourceExhausted, "no host memory for a checkpoint");
  }
  return snapshot;
}

std::vector<std::pair<std::int64_t, std::string>> list_checkpoints(const std::string& folder) {
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

void remove_checkpoint(const std::string& path, const CheckpointStage& stage) {
  const fs::path folder(path);
  const fs::path aside =
      folder.parent_path() / (std::string(kRemoved) + folder.filename().string());
  std::error_code failure;
  fs::remove_all(aside, failure);
  fs::rename(folder, aside, failure);
  if (stage) stage("set aside");
  fs::remove_all(failure ? folder : aside, failure);
  if (stage) stage("removed");
}

void remove_leftovers(const std::string& folder) {
  std::error_code failure;
  std::vector<fs::path> old;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kTemporary) || name.starts_with(kRemoved)) old.push_back(it->path());
  }
  for (const fs::path& path : old) fs::remove_all(path, failure);
}

Result<CheckpointInfo> write_checkpoint(const std::string& folder, const Snapshot& snapshot,
                                        const CheckpointStage& stage) {
  const CheckpointState& state = snapshot.state;
  const auto reached = [&](std::string_view name) {
    if (stage) stage(name);
  };
  const std::string path = folder + "/" + folder_name(state.step);
  std::error_code failure;
  if (fs::exists(path, failure)) {
    auto there = verify_checkpoint(path);
    if (there && there->state.identity == state.identity) return there;
    remove_checkpoint(path, stage);
  }
  const std::string temporary = folder + "/" + std::string(kTemporary) + folder_name(state.step);
  fs::remove_all(temporary, failure);
  fs::create_directories(temporary, failure);
  if (failure) return error(errno_status(failure.value(), "create", temporary));
  reached("folder");

  const auto write = [&]() -> Status {
    const net::ParameterSet& parameters = *snapshot.parameters;
    json files = json::object();
    const auto note = [&](const char* name, std::int64_t bytes, const std::string& sha256) {
      files[name] = {{"bytes", bytes}, {"sha256", sha256}};
    };
    TAILOR_ASSIGN_OR_RETURN(const pretrained::WrittenFile model,
                            pretrained::write_safetensors(temporary + "/model.safetensors",
                                                          parameters.describe(snapshot.weights, ""),
                                                          {{"format", "pt"}}));
    note("model.safetensors", model.bytes, model.sha256);
    reached("model");
    std::vector<pretrained::TensorData> moments = parameters.describe(snapshot.m, "exp_avg.");
    for (pretrained::TensorData& tensor : parameters.describe(snapshot.v, "exp_avg_sq.")) {
      moments.push_back(std::move(tensor));
    }
    TAILOR_ASSIGN_OR_RETURN(
        const pretrained::WrittenFile moment_file,
        pretrained::write_safetensors(temporary + "/optimizer.safetensors", moments));
    note("optimizer.safetensors", moment_file.bytes, moment_file.sha256);
    reached("optimizer");
    const std::string text = state_json(state);
    TAILOR_RETURN_IF_ERROR(write_file_atomic(temporary + "/state.json", text));
    note("state.json", static_cast<std::int64_t>(text.size()), sha256_hex(text));
    reached("state");
    const json manifest = {
        {"format", "tailor-checkpoint"}, {"version", kFormatVersion}, {"files", files}};
    TAILOR_RETURN_IF_ERROR(
        write_file_atomic(temporary + "/manifest.json", manifest.dump(1) + "\n"));
    reached("manifest");
    return sync_directory(temporary);
  };
  if (const Status status = write(); !status) {
    fs::remove_all(temporary, failure);
    return error(status.with_context("the checkpoint was not saved"));
  }
  fs::rename(temporary, path, failure);
  if (failure) return error(errno_status(failure.value(), "rename", temporary));
  reached("renamed");
  TAILOR_RETURN_IF_ERROR(sync_directory(folder));
  reached("synced");
  TAILOR_ASSIGN_OR_RETURN(CheckpointInfo saved, verify_checkpoint(path));
  reached("verified");
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
  const auto usable = [&](const CheckpointState& state) {
    if (state.identity == identity) return Status::ok();
    return Status(Code::kFailedPrecondition,
                  "it belongs to another trial (shape, recipe, seed or data differ)");
  };
  return newest_checkpoint(folders, usable, skipped);
}

std::optional<CheckpointInfo> newest_checkpoint(const std::vector<std::string>& folders,
                                                const UsableCheckpoint& usable,
                                                const SkippedCheckpoint& skipped) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const std::string& folder : folders) {
    const auto found = list_checkpoints(folder);
    all.insert(all.end(), found.begin(), found.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [step, path] : all) {
    auto info = verify_checkpoint(path);
    if (!info) {
      skipped(path, info.error());
    } else if (const Status status = usable(info->state); !status) {
      skipped(path, status);
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
  optimizer.set_steps(checkpoint.state.step, checkpoint.state.skipped);
  parameters.refresh();
  return Status::ok();
}

}  // namespace tailor::train
