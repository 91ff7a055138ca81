// What every handler works with: the parts of the Core, one request, who asks; and the helpers that
// make answers.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fleet/switch.h"
#include "net/http.h"
#include "server/core.h"

namespace anychip::server {

struct Shared {
  CoreParts parts;
  CoreOptions options;
  WallTime started_at;
  MonoTime started_mono;

  // Stored times and limits: wall time that never steps while this process lives.
  WallTime now() const { return started_at + (parts.clock.mono_now() - started_mono); }
  fleet::Context context() const { return {now(), parts.random, options.limits}; }
};

struct Principal {
  AccountId account;
  ProjectId project;
  NodeId node;
  bool is_admin = false;
};

struct Call {
  Shared& shared;
  const net::Request& request;
  store::Db& db;
  Principal who;
  std::vector<std::string> parameters;  // of the path, in order
  bool is_last_try = false;
  std::string before;  // what the route's `before` found out without the database
  std::string request_id;
};

enum class Access { kPublic, kAccount, kAccountOrAdmin, kAdmin, kAgent };
enum class Mode { kRead, kWrite };
using Handle = Result<net::Outcome> (*)(Call&);
// Runs on the server's thread after authentication and before the transaction: file work.
using Before = Result<std::string> (*)(Shared&, const net::Request&);

struct Route {
  std::string_view method, path;
  Access access;
  Mode mode;
  Handle handle;
  bool takes_idempotency_key = false;
  Before before = nullptr;
};
const std::vector<Route>& routes();

// --- answers -------------------------------------------------------------------------------------
net::Response ok(const json::value& body, int status = 200);
net::Response empty_answer();  // 204
net::Response problem(const Error& error, std::string_view request_id);
// Every reason at once; the first decides code and status.
net::Response refusal(const Call& call, const std::vector<fleet::Refusal>& refusals);
// "{items, next_cursor}"
json::object list_of(json::array items, std::string next_cursor = {});

// --- reading requests ----------------------------------------------------------------------------
Result<json::object> body_of(const net::Request& request);
Result<int64_t> query_int(const net::Request& request, std::string_view key, int64_t fallback,
                          int64_t least, int64_t most);
struct Page {
  int64_t limit = 100;
  std::string cursor;  // "" = from the beginning
};
Result<Page> page_of(const net::Request& request);

template <class T>
json::value time_or_null(const T& time) {
  if constexpr (requires { time.has_value(); }) {
    return time ? json::value(time->rfc3339()) : json::value(nullptr);
  } else {
    return json::value(time.rfc3339());
  }
}
json::value text_or_null(const std::string& text);
json::value number_or_null(std::optional<double> number);  // not finite = null
json::value number_or_null(std::optional<int64_t> number);
json::value number_or_null(double number);

}  // namespace anychip::server
