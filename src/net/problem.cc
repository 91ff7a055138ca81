#include "net/problem.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"

namespace anychip::net {
namespace {

std::optional<Code> code_of_name(std::string_view name) {
  for (int number = 1; number <= static_cast<int>(Code::kPaymentRequired); ++number) {
    const Code code = static_cast<Code>(number);
    if (name_of(code) == name) return code;
  }
  return std::nullopt;
}

Code code_of_status(int status) {
  if (const auto code = code_of_http_status(status)) return *code;
  return status < 500 ? Code::kInvalidArgument : Code::kUnknown;
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 402: return "Payment Required";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Unknown";
  }
}

Response problem_response(const Error& error, std::optional<int> status,
                          std::string_view request_id) {
  Response response;
  response.status = status.value_or(http_status_of(error.code));
  json::object body;
  body["type"] = fmt::format("https://anychip.dev/errors/{}", error.reason);
  body["title"] = reason_phrase(response.status);
  body["status"] = response.status;
  body["detail"] = error.message;
  body["code"] = error.reason;
  body["kind"] = name_of(error.code);
  body["hint"] = error.hint;
  json::array fields;
  for (const FieldError& field : error.fields) {
    fields.push_back(json::object{{"pointer", field.pointer}, {"message", field.message}});
  }
  body["errors"] = std::move(fields);
  body["request_id"] = request_id;
  response.headers = {{"Content-Type", "application/problem+json"}};
  if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
  response.body = json::serialize(body);
  return response;
}

Error error_of(const Response& response) {
  CHECK(response.status >= 400);
  Error error;
  error.code = code_of_status(response.status);
  error.reason = fmt::format("http_{}", response.status);
  error.message =
      fmt::format("the server answered {} {}", response.status, reason_phrase(response.status));
  if (header(response.headers, "Content-Type").find("json") == std::string_view::npos) return error;
  const Result<json::value> parsed = json::parse(response.body);
  if (!parsed || !parsed->is_object()) return error;
  const json::object& body = parsed->get_object();
  if (const auto code = code_of_name(json::string_at(body, "kind"))) error.code = *code;
  if (auto reason = json::string_at(body, "code"); !reason.empty())
    error.reason = std::move(reason);
  if (auto detail = json::string_at(body, "detail"); !detail.empty()) {
    error.message = std::move(detail);
  }
  error.hint = json::string_at(body, "hint");
  for (const json::value& field : json::array_at(body, "errors")) {
    if (!field.is_object()) continue;
    error.fields.push_back({json::string_at(field.get_object(), "pointer"),
                            json::string_at(field.get_object(), "message")});
  }
  return error;
}

}  // namespace anychip::net
