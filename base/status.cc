#include "base/status.h"

#include <fmt/format.h>

namespace tailor {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kCancelled:
      return "cancelled";
    case Code::kUnknown:
      return "unknown";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kNotFound:
      return "not_found";
    case Code::kAlreadyExists:
      return "already_exists";
    case Code::kPermissionDenied:
      return "permission_denied";
    case Code::kResourceExhausted:
      return "resource_exhausted";
    case Code::kFailedPrecondition:
      return "failed_precondition";
    case Code::kAborted:
      return "aborted";
    case Code::kOutOfRange:
      return "out_of_range";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kInternal:
      return "internal";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDataLoss:
      return "data_loss";
    case Code::kUnauthenticated:
      return "unauthenticated";
  }
  return "unknown";
}

std::string Status::to_string() const {
  return is_ok() ? std::string("ok") : fmt::format("{}: {}", code_name(code_), message_);
}

Status Status::with_context(std::string_view context) const {
  return is_ok() ? *this : Status(code_, fmt::format("{}: {}", context, message_));
}

}  // namespace tailor
