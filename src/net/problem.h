// Errors on the wire: application/problem+json (RFC 9457) as the contract §1 has it, both ways.
#pragma once

#include <optional>
#include <string_view>

#include "base/error.h"
#include "net/http.h"

namespace anychip::net {

// `status` overrides the status of the error's code where the contract asks for a finer one (413,
// 422).
Response problem_response(const Error& error, std::optional<int> status = {},
                          std::string_view request_id = {});

// The Error of an answer with status >= 400, whoever sent it: ours comes back with the same code,
// reason, hint and fields; anything else (a proxy's HTML) gets the code of its status and the
// reason "http_STATUS". Precondition (CHECK): status >= 400.
Error error_of(const Response& response);

// "Not Found"; "Unknown" for a status without a name.
std::string_view reason_phrase(int status);

}  // namespace anychip::net
