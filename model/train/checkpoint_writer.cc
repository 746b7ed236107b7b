#include "model/train/checkpoint_writer.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace tailor::train {

CheckpointWriter::CheckpointWriter(std::string folder, KeepPolicy keep, const net::Decoder& decoder,
                                   AdamW& optimizer, CheckpointStage stage)
    : folder_(std::move(folder)),
      keep_(keep),
      decoder_(decoder),
      optimizer_(optimizer),
      stage_(std::move(stage)) {
  remove_leftovers(folder_);
}

CheckpointWriter::~CheckpointWriter() {
  if (under_way_.valid()) under_way_.wait();
}

Status CheckpointWriter::start(const CheckpointState& state) {
  TAILOR_CHECK(!busy());
  TAILOR_ASSIGN_OR_RETURN(Snapshot snapshot, take_snapshot(state, decoder_, optimizer_));
  if (stage_) stage_("snapshot");
  under_way_ = std::async(std::launch::async, [this, taken = std::move(snapshot)]() -> Outcome {
    return write(taken);
  });
  return Status::ok();
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::poll() {
  if (!busy() || under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return std::nullopt;
  }
  return under_way_.get();
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::wait() {
  if (!busy()) return std::nullopt;
  return under_way_.get();
}

CheckpointWriter::Outcome CheckpointWriter::write(const Snapshot& snapshot) {
  TAILOR_ASSIGN_OR_RETURN(CheckpointInfo saved, write_checkpoint(folder_, snapshot, stage_));
  verified_[saved.path] = saved.state;
  remove_old(saved);
  return saved;
}

// The state of a checkpoint that is whole and of this trial, nullptr otherwise. Each is read once.
const CheckpointState* CheckpointWriter::whole(const std::string& path,
                                               const std::string& identity) {
  auto known = verified_.find(path);
  if (known == verified_.end()) {
    const auto info = verify_checkpoint(path);
    if (!info) {
      // Useless beside a newer one that was verified. What cannot be read for another reason stays.
      if (info.error().code() == Code::kDataLoss) remove_checkpoint(path, stage_);
      return nullptr;
    }
    known = verified_.emplace(path, info->state).first;
  }
  return known->second.identity == identity ? &known->second : nullptr;
}

void CheckpointWriter::remove_old(const CheckpointInfo& newest) {
  std::vector<std::string> ours;  // newest first
  std::string best;
  std::optional<double> lowest;
  for (const auto& [step, path] : list_checkpoints(folder_)) {
    if (step > newest.state.step) continue;
    const CheckpointState* state = whole(path, newest.state.identity);
    if (state == nullptr) continue;
    ours.push_back(path);
    if (keep_.best && state->validation_loss && (!lowest || *state->validation_loss < *lowest)) {
      lowest = state->validation_loss;
      best = path;
    }
  }
  for (std::size_t i = static_cast<std::size_t>(keep_.last); i < ours.size(); ++i) {
    if (ours[i] == best) continue;
    verified_.erase(ours[i]);
    remove_checkpoint(ours[i], stage_);
  }
}

}  // namespace tailor::train
