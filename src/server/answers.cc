#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "net/problem.h"
#include "server/shared.h"

namespace anychip::server {

net::Response ok(const json::value& body, int status) {
  return {status, {{"Content-Type", "application/json"}}, json::serialize(body)};
}

net::Response empty_answer() { return {204, {}, {}}; }

net::Response problem(const Error& error, std::string_view request_id) {
  std::optional<int> status;
  if (error.reason == "workdir_too_large") status = 413;
  if (error.reason == "idempotency_key_reused") status = 422;
  if (error.reason == "method_not_allowed") status = 405;
  return net::problem_response(error, status, request_id);
}

net::Response refusal(const Call& call, const std::vector<fleet::Refusal>& refusals) {
  CHECK(!refusals.empty());
  const fleet::Refusal& first = refusals.front();
  net::Response response = net::problem_response(
      Error{first.code, first.reason, first.message, first.hint, {}}, {}, call.request_id);
  auto body = json::parse(response.body);
  CHECK(body.has_value() && body->is_object());
  json::array errors;
  for (const fleet::Refusal& one : refusals) {
    errors.push_back(json::object{{"pointer", one.pointer},
                                  {"message", one.message},
                                  {"code", one.reason},
                                  {"hint", one.hint}});
  }
  body->get_object()["errors"] = std::move(errors);
  response.body = json::serialize(*body);
  return response;
}

json::object list_of(json::array items, std::string next_cursor) {
  return {{"items", std::move(items)}, {"next_cursor", text_or_null(next_cursor)}};
}

Result<json::object> body_of(const net::Request& request) {
  if (request.body.empty()) return json::object{};
  TRY(json::value parsed, json::parse(request.body));
  if (!parsed.is_object()) {
    return fail(Code::kInvalidArgument, "body_not_object", "the body must be a JSON object");
  }
  return std::move(parsed.get_object());
}

Result<int64_t> query_int(const net::Request& request, std::string_view key, int64_t fallback,
                          int64_t least, int64_t most) {
  const auto text = request.query(key);
  if (!text) return fallback;
  const auto wrong = [&] {
    Error error{Code::kInvalidArgument,
                "query_invalid",
                fmt::format("'{}' must be a whole number from {} to {}", key, least, most),
                {},
                {}};
    error.fields.push_back({fmt::format("/query/{}", key), error.message});
    return tl::unexpected(std::move(error));
  };
  if (text->empty() || text->size() > 18) return wrong();
  int64_t number = 0;
  for (const char c : *text) {
    if (c < '0' || c > '9') return wrong();
    number = number * 10 + (c - '0');
  }
  if (number < least || number > most) return wrong();
  return number;
}

Result<Page> page_of(const net::Request& request) {
  Page page;
  TRY(page.limit, query_int(request, "limit", 100, 1, 500));
  page.cursor = request.query("cursor").value_or("");
  return page;
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

json::value number_or_null(std::optional<double> number) {
  return number && std::isfinite(*number) ? json::value(*number) : json::value(nullptr);
}

json::value number_or_null(std::optional<int64_t> number) {
  return number ? json::value(*number) : json::value(nullptr);
}

json::value number_or_null(double number) { return number_or_null(std::optional(number)); }

}  // namespace anychip::server
