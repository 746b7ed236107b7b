// The only mapping between tailor.v1 messages and the plain values of this folder,
// and their JSON forms.
//
// Message classes are only named here: code that includes this header does not see generated ones.
// `to_proto` accepts every value; text that is not UTF-8 (a path, a library's message) has its
// wrong bytes replaced by '?', because protobuf would refuse the whole message on the other side.
// `from_proto` is fed by the network and by files: it refuses unset or unknown enum values, missing
// parts and missing bodies by name (kInvalidArgument) and an architecture that shape::validate
// refuses. It applies protocol/limits.h: free text is cut, names that are too long are refused; of
// a message of reports only their number is checked (see `check_report`), and one that cannot be
// read keeps its place with the reason (`Report::unreadable`). An end class that this version does
// not know is kInfrastructure, and the message says so.
//
// JSON is protobuf JSON with the field names of the .proto files: 64-bit integers are strings, NaN
// and infinities are "NaN", "Infinity", "-Infinity". Unknown fields are errors. Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/shape/architecture.h"
#include "protocol/messages.h"
#include "protocol/report.h"
#include "protocol/trial_spec.h"

namespace tailor::v1 {
class Architecture;
class CoordinatorMessage;
class Report;
class TrialSpec;
class WorkerMessage;
}  // namespace tailor::v1

namespace tailor::protocol {

// Each replaces whatever `out` held.
void to_proto(const shape::Architecture& value, v1::Architecture* out);
void to_proto(const TrialSpec& value, v1::TrialSpec* out);
void to_proto(const Report& value, v1::Report* out);
void to_proto(const WorkerMessage& value, v1::WorkerMessage* out);
void to_proto(const CoordinatorMessage& value, v1::CoordinatorMessage* out);

Result<shape::Architecture> from_proto(const v1::Architecture& proto);
Result<TrialSpec> from_proto(const v1::TrialSpec& proto);
Result<Report> from_proto(const v1::Report& proto);
Result<WorkerMessage> from_proto(const v1::WorkerMessage& proto);
Result<CoordinatorMessage> from_proto(const v1::CoordinatorMessage& proto);

/// True for a message whose body is one that this version does not know: of a newer sender, and to
/// be passed over. `from_proto` refuses it.
bool is_of_another_version(const v1::WorkerMessage& proto);

/// spec.json: indented, with a final newline.
std::string to_json(const TrialSpec& spec);
/// Reads spec.json. A key that is absent has the default of protocol/trial_spec.h (`kv_heads`: as
/// many as `heads`; of OLMo-2: shape::defaults_of); one that is there and 0 is 0. Errors:
/// kInvalidArgument naming the syntax error, all unknown keys with what they may have meant, all
/// fields without a default that are missing, or two fields of which only one may be given.
Result<TrialSpec> trial_spec_from_json(std::string_view json);

/// One line of reports.jsonl, without the newline and with none inside.
std::string to_json_line(const Report& report);
/// Reads one line. Errors: kInvalidArgument naming the field or the syntax error (a torn line), and
/// those of check_report.
Result<Report> report_from_json(std::string_view line);

}  // namespace tailor::protocol
