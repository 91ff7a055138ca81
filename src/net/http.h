// HTTP as plain values. Only net/*.cc include Beast; everybody else sees these structs, so the
// simulator can carry the same Request and Response without a socket.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/time.h"

namespace anychip::net {

using Headers = std::vector<std::pair<std::string, std::string>>;  // names compare without case
std::string_view header(const Headers& headers, std::string_view name);  // "" when absent

struct Request {
  std::string method;  // "GET"
  std::string target;  // path and query as sent: "/v1/runs?limit=5"
  Headers headers;
  std::string body;
  std::string peer;    // remote address, "" in the simulator

  std::string_view path() const;                           // without the query
  std::optional<std::string> query(std::string_view key) const;  // percent-decoded
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
};

// A handler that has nothing to say yet (long poll): the request is handled again when
// Server::wake() is called, and at the latest after `wait`; then `otherwise` is the answer if the
// handler returns Waiting once more.
struct Waiting {
  Duration wait;
  Response otherwise;
};

// A streaming answer (SSE). The head goes out at once; `next` is called after every wake() and every
// `heartbeat`, from one thread at a time; it returns text to send ("" = nothing new) or nullopt = end.
struct Streaming {
  Response head;  // body empty
  Duration heartbeat;
  std::function<std::optional<std::string>()> next;
};

using Outcome = std::variant<Response, Waiting, Streaming>;

// Called on a server thread; must answer by calling `done` exactly once, from any thread, at any
// later time. `is_last_try` is true when a Waiting request has run out of time.
using Done = std::function<void(Outcome)>;
using Handler = std::function<void(Request, bool is_last_try, Done)>;

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0 = any free one
  int threads = 2;
  size_t body_bytes_max = 1 << 20;          // other limits per route:
  size_t upload_body_bytes_max = 544 << 20;  // for targets that begin with upload_prefix
  std::string upload_prefix = "/v1/workdirs";
  size_t connections_max = 4096;
  Duration idle_timeout = seconds(75);
};

// An HTTP/1.1 server with keep-alive. start() binds (reason "port_in_use" names the port) and
// returns at once; the destructor stops and joins. wake() may be called from any thread.
class Server {
 public:
  static Result<std::unique_ptr<Server>> start(ServerOptions options, Handler handler);
  virtual ~Server() = default;
  virtual uint16_t port() const = 0;
  virtual void wake() = 0;
};

struct ClientOptions {
  std::string url;  // "http://127.0.0.1:8080"; https is accepted when TLS is built in
  Duration timeout = seconds(30);  // of one whole request; long polls pass their own
};

// A blocking client that keeps one connection alive and reconnects. One thread at a time.
// An unreachable server is kUnavailable, reason "server_unreachable".
class Client {
 public:
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  virtual ~Client() = default;
  virtual Result<Response> send(const Request& request, Duration timeout) = 0;
  // GET whose answer body is handed over piece by piece as it comes; `piece` returns false to stop.
  virtual Result<Response> stream(const Request& request, Duration idle_timeout,
                                  std::function<bool(std::string_view)> piece) = 0;
};

// Percent-encoding of one path segment or query value.
std::string url_encode(std::string_view text);

}  // namespace anychip::net
