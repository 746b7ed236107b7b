// What exit codes of trainers mean.
#include "protocol/report.h"

namespace tailor::protocol {

EndClass end_class_of_exit(int exit_code) {
  switch (static_cast<TrainerExit>(exit_code)) {
    case TrainerExit::kCompleted:
      return EndClass::kCompleted;
    case TrainerExit::kUsage:
      return EndClass::kUser;
    case TrainerExit::kData:
      return EndClass::kData;
    case TrainerExit::kOom:
      return EndClass::kOom;
    case TrainerExit::kNan:
      return EndClass::kNan;
    case TrainerExit::kStopped:
      return EndClass::kStopped;
    case TrainerExit::kInternal:
    case TrainerExit::kInfrastructure:
    case TrainerExit::kLostRank:
      return EndClass::kInfrastructure;
  }
  return EndClass::kInfrastructure;
}

}  // namespace tailor::protocol
