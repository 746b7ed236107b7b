// Views and rows to the messages that clients see: the only place where tailor.v1's sweep, trial
// and worker messages are filled in. (Trial specs, reports and worker messages:
// protocol/convert.h.)
#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"
#include "coordinator/analysis/comparison_page.h"
#include "coordinator/analysis/scaling.h"
#include "coordinator/engine/views.h"
#include "coordinator/rpc/paging.h"
#include "storage/records.h"
#include "storage/store.h"
#include "tailor/v1/coordinator.pb.h"
#include "tailor/v1/sweep.pb.h"

namespace tailor::rpc {

/// Text of users' files and logs may be any bytes; a proto string must be UTF-8, and a message that
/// is not could not be sent at all. Wrong bytes become '?'.
std::string utf8(std::string_view text);

/// The codes are gRPC's own numbers.
grpc::Status to_grpc(const Status& status);

v1::SweepState to_proto(storage::SweepState state);
v1::TrialState to_proto(storage::TrialState state);
/// Unspecified = nullopt. Errors: kInvalidArgument for a number that is no state.
Result<std::optional<storage::TrialState>> from_proto(v1::TrialState state);

v1::Sweep to_proto(const engine::SweepView& view);
v1::Candidate to_proto(const storage::CandidateRow& row);
v1::Trial to_proto(const engine::TrialView& view);
v1::Attempt to_proto(const engine::AttemptView& view);
v1::Checkpoint to_proto(const storage::CheckpointRow& row);
v1::WorkEntry to_proto(const storage::ProfileRow& row);
v1::Event to_proto(const storage::EventRow& row);
v1::WorkerInfo to_proto(const engine::WorkerView& view);
/// `page` is one of `table`.
v1::CompareScalingResponse to_proto(const analysis::ScalingTable& table);
v1::CompareResponse to_proto(const analysis::ComparisonTable& table,
                             const analysis::ComparisonPage& page);
v1::QueryRow to_proto(const std::vector<storage::Cell>& row);
/// Adds the work profile as far as there is room. False when some of it is left out.
bool add_profile(const std::vector<storage::ProfileRow>& rows, PageBudget& budget,
                 v1::GetTrialResponse& out);

}  // namespace tailor::rpc
