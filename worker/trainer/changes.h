// What was changed in spec.json since the trial directory was last run. No LibTorch.
#pragma once

#include <string>
#include <vector>

#include "protocol/trial_spec.h"

namespace tailor::trainer {

/// What a field decides.
enum class Decides {
  kNothing,   ///< of the result: where and how it is trained, what is logged and kept
  kMeasures,  ///< which numbers are measured of the trained weights, or where the data lie
  kResult,    ///< the trained weights
};

struct SpecChange {
  std::string field;  ///< "train.optimizer.lr"
  std::string was;
  std::string is;
  Decides decides = Decides::kResult;
};

/// The fields in which two specs differ, as spec.json names them. A field that this version does
/// not know the meaning of decides the result.
std::vector<SpecChange> changes_between(const protocol::TrialSpec& was,
                                        const protocol::TrialSpec& is);

/// "train.tokens was 5120, is 10240; ..."; "" for none.
std::string to_text(const std::vector<SpecChange>& changes);

}  // namespace tailor::trainer
