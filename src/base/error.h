// Error values. Every fallible function returns Result<T>; nothing throws across a module border.
//
// Code is the small canonical set shared with gRPC, IREE and PJRT. `reason` is the stable word that
// clients switch on (`chip_unknown`, `port_in_use`); the table in error.cc maps Code to an HTTP
// status and to a CLI exit code, so the three faces can never disagree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

namespace anychip {

enum class Code : uint8_t {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,     // the caller must change the request
  kDeadlineExceeded = 4,    // outcome may be unknown: retry with the same idempotency key
  kNotFound = 5,            // also: exists, but belongs to somebody else
  kAlreadyExists = 6,       // a name or an id is taken
  kPermissionDenied = 7,    // known caller, not allowed
  kResourceExhausted = 8,   // no capacity, quota
  kFailedPrecondition = 9,  // the object is in a state that does not allow this
  kAborted = 10,            // lost a race; reading again and retrying may help
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,  // the other side cannot be reached; safe to retry
  kDataLoss = 15,
  kUnauthenticated = 16,
  kPaymentRequired = 17,  // ours: funds do not cover it
};

// One wrong place in a request body; `pointer` is an RFC 6901 JSON pointer.
struct FieldError {
  std::string pointer;
  std::string message;
};

struct [[nodiscard]] Error {
  Code code = Code::kUnknown;
  std::string reason;   // stable snake_case word, e.g. "chip_unknown"
  std::string message;  // one sentence for a person, no trailing period needed
  std::string hint;     // the way out; may be empty
  std::vector<FieldError> fields;

  // Prefixes the message with where it happened: "build image pytorch: ..." Keeps code and reason.
  Error&& within(std::string_view context) &&;
  std::string to_string() const;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

tl::unexpected<Error> fail(Code code, std::string reason, std::string message,
                           std::string hint = {});
// An errno turned into a Code (ENOENT -> kNotFound, ENOSPC -> kResourceExhausted ...), reason
// "os_error".
tl::unexpected<Error> fail_errno(std::string_view what, int error_number);

int http_status_of(Code code);
int exit_code_of(Code code);
std::string_view name_of(Code code);
std::optional<Code> code_of_http_status(int status);

}  // namespace anychip

#define ANYCHIP_CAT2(a, b) a##b
#define ANYCHIP_CAT(a, b) ANYCHIP_CAT2(a, b)
#define ANYCHIP_TRY(tmp, lhs, expr)                          \
  auto tmp = (expr);                                         \
  if (!tmp) return ::tl::unexpected(std::move(tmp).error()); \
  lhs = std::move(*tmp)
// TRY(auto x, f()): x is the value, or the function returns f's error.
#define TRY(lhs, expr) ANYCHIP_TRY(ANYCHIP_CAT(try_result_, __COUNTER__), lhs, expr)
// TRY_VOID(f()): the same for a Status.
#define TRY_VOID(expr)                                        \
  do {                                                        \
    if (auto try_status = (expr); !try_status)                \
      return ::tl::unexpected(std::move(try_status).error()); \
  } while (false)
