#include "model/train/recipe.h"

#include <cmath>

namespace tailor::train {
namespace {

enum class Role { kTable, kHidden, kGain, kLastGain };  // kTable: embedding and head

Role role_of(const net::Part& part) {
  if (part.init == net::Init::kOnes) return part.key == "norm" ? Role::kLastGain : Role::kGain;
  return part.key == "embedding" || part.key == "head" ? Role::kTable : Role::kHidden;
}

}  // namespace

double initial_scale(const net::Part& part, const protocol::TrainSpec& train,
                     const shape::Architecture& architecture) {
  const bool mup = train.optimizer.lr_mode == protocol::LrMode::kMup;
  const auto base = static_cast<double>(train.optimizer.mup_base_width);
  switch (role_of(part)) {
    case Role::kTable:
      return train.init_std;
    case Role::kGain:
      return 1;
    case Role::kLastGain:
      return mup ? base / architecture.d_model : 1;
    case Role::kHidden:
      break;
  }
  const auto fan_in = static_cast<double>(part.cols);
  if (train.down_init == protocol::DownInit::kFanIn && part.key.ends_with(".down")) {
    return 1 / std::sqrt(fan_in);
  }
  return mup ? train.init_std * std::sqrt(base / fan_in) : train.init_std;
}

double lr_factor(const net::Part& part, const protocol::OptimizerSpec& optimizer,
                 const shape::Architecture& architecture) {
  if (optimizer.lr_mode != protocol::LrMode::kMup) return 1;
  const auto base = static_cast<double>(optimizer.mup_base_width);
  switch (role_of(part)) {
    case Role::kTable:
    case Role::kGain:
      return 1;
    case Role::kLastGain:
      return base / architecture.d_model;
    case Role::kHidden:
      break;
  }
  return base / static_cast<double>(part.cols);
}

}  // namespace tailor::train
