#include "base/error.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace anychip {
namespace {

struct Row {
  Code code;
  std::string_view name;
  int http_status;
  int exit_code;
};

// Exit codes are design §6: 1 failed, 2 cancelled, 3 usage, 4 auth, 5 not found, 6 conflict,
// 7 funds or quota, 8 no capacity, 9 timeout.
constexpr Row kTable[] = {
    {Code::kCancelled, "cancelled", 499, 2},
    {Code::kUnknown, "unknown", 500, 1},
    {Code::kInvalidArgument, "invalid_argument", 400, 3},
    {Code::kDeadlineExceeded, "deadline_exceeded", 504, 9},
    {Code::kNotFound, "not_found", 404, 5},
    {Code::kAlreadyExists, "already_exists", 409, 6},
    {Code::kPermissionDenied, "permission_denied", 403, 4},
    {Code::kResourceExhausted, "resource_exhausted", 503, 8},
    {Code::kFailedPrecondition, "failed_precondition", 409, 6},
    {Code::kAborted, "aborted", 409, 6},
    {Code::kOutOfRange, "out_of_range", 400, 3},
    {Code::kUnimplemented, "unimplemented", 501, 1},
    {Code::kInternal, "internal", 500, 1},
    {Code::kUnavailable, "unavailable", 503, 1},
    {Code::kDataLoss, "data_loss", 500, 1},
    {Code::kUnauthenticated, "unauthenticated", 401, 4},
    {Code::kPaymentRequired, "payment_required", 402, 7},
};

const Row& row_of(Code code) {
  for (const Row& row : kTable) {
    if (row.code == code) return row;
  }
  return kTable[1];
}

Code code_of_errno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ESRCH: return Code::kNotFound;
    case EEXIST: return Code::kAlreadyExists;
    case EACCES:
    case EPERM: return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE: return Code::kResourceExhausted;
    case EBUSY:
    case ENOTEMPTY: return Code::kFailedPrecondition;
    case EINVAL: return Code::kInvalidArgument;
    case ETIMEDOUT: return Code::kDeadlineExceeded;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return Code::kUnavailable;
    case ENOSYS:
    case EOPNOTSUPP: return Code::kUnimplemented;
    default: return Code::kInternal;
  }
}

}  // namespace

Error&& Error::within(std::string_view context) && {
  message = fmt::format("{}: {}", context, message);
  return std::move(*this);
}

std::string Error::to_string() const {
  std::string text = fmt::format("{} ({}): {}", reason, name_of(code), message);
  for (const FieldError& field : fields)
    text += fmt::format("; {}: {}", field.pointer, field.message);
  if (!hint.empty()) text += fmt::format(". {}", hint);
  return text;
}

tl::unexpected<Error> fail(Code code, std::string reason, std::string message, std::string hint) {
  return tl::unexpected(Error{code, std::move(reason), std::move(message), std::move(hint), {}});
}

tl::unexpected<Error> fail_errno(std::string_view what, int error_number) {
  return fail(code_of_errno(error_number), "os_error",
              fmt::format("{}: {}", what, std::strerror(error_number)));
}

int http_status_of(Code code) { return row_of(code).http_status; }
int exit_code_of(Code code) { return row_of(code).exit_code; }
std::string_view name_of(Code code) { return row_of(code).name; }

std::optional<Code> code_of_http_status(int status) {
  for (const Row& row : kTable) {
    if (row.http_status == status) return row.code;
  }
  return std::nullopt;
}

}  // namespace anychip
