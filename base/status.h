// Status and Result<T>: how a function says that something went wrong.
//
// Three kinds of trouble (ARCHITECTURE.md, "Errors"): a bug is a CHECK and aborts; an outcome that
// the caller must handle is a Status or a Result<T>; a numerical outcome is a field of a summary.
// The codes carry gRPC's own numbers, so mapping to the wire is a cast. A message says what
// happened, to what, and what to do; callers add context going up with `Status::with_context`.
//
// Threads: values, no shared state.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace tailor {

/// Outcome classes. The numbers are those of google.rpc.Code.
enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,  ///< the input is wrong whatever the state of the system
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,  ///< a conflict with something that is there (same name, other content)
  kPermissionDenied = 7,
  kResourceExhausted = 8,  ///< disk, memory, quota
  /// Right input, wrong state; retrying does not help until the state changes.
  kFailedPrecondition = 9,
  kAborted = 10,  ///< lost a race (stale fencing token)
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,  ///< retry later
  kDataLoss = 15,     ///< a file is cut, altered or corrupt
  kUnauthenticated = 16,
};

/// The name used in logs and JSON, e.g. "not_found".
std::string_view code_name(Code code);

/// Success, or a code and a message for a person.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }

  bool is_ok() const { return code_ == Code::kOk; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  /// "code: message", for logs.
  std::string to_string() const;

  /// The same failure with `context` and a colon put in front of the message;
  /// success stays success.
  Status with_context(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A value, or the Status that says why there is none. REQUIRES: the Status is not ok.
template <typename T>
using Result = tl::expected<T, Status>;

/// Makes the failing side of a Result: `return error(Code::kNotFound, "...")`.
inline tl::unexpected<Status> error(Code code, std::string message) {
  return tl::unexpected<Status>(Status(code, std::move(message)));
}
inline tl::unexpected<Status> error(Status status) {
  return tl::unexpected<Status>(std::move(status));
}

/// The Status of a Result: ok when it holds a value.
template <typename T>
Status status_of(const Result<T>& result) {
  return result.has_value() ? Status::ok() : result.error();
}

}  // namespace tailor

/// Returns from the enclosing function (Status or Result) if `expr`, a Status, failed.
#define TAILOR_RETURN_IF_ERROR(expr)                                         \
  do {                                                                       \
    if (::tailor::Status tailor_status_ = (expr); !tailor_status_.is_ok()) { \
      return ::tailor::internal::as_return(std::move(tailor_status_));       \
    }                                                                        \
  } while (false)

#define TAILOR_CONCAT_INNER_(a, b) a##b
#define TAILOR_CONCAT_(a, b) TAILOR_CONCAT_INNER_(a, b)

/// `TAILOR_ASSIGN_OR_RETURN(auto x, f());` takes the value of a Result or returns its Status.
#define TAILOR_ASSIGN_OR_RETURN(lhs, expr) \
  TAILOR_ASSIGN_OR_RETURN_IMPL_(TAILOR_CONCAT_(tailor_result_, __LINE__), lhs, expr)
#define TAILOR_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr)             \
  auto tmp = (expr);                                              \
  if (!tmp.has_value()) {                                         \
    return ::tailor::internal::as_return(std::move(tmp).error()); \
  }                                                               \
  lhs = std::move(tmp).value()

namespace tailor::internal {

/// Converts to Status and to any Result<T>, so that one macro serves both kinds of function.
class FailedReturn {
 public:
  explicit FailedReturn(Status status) : status_(std::move(status)) {}
  operator Status() && { return std::move(status_); }  // NOLINT: implicit on purpose
  template <typename T>
  operator Result<T>() && {  // NOLINT: implicit on purpose
    return tl::unexpected<Status>(std::move(status_));
  }

 private:
  Status status_;
};

inline FailedReturn as_return(Status status) { return FailedReturn(std::move(status)); }

}  // namespace tailor::internal
