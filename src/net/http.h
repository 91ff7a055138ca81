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
  std::string peer;  // remote address, "" in the simulator

  std::string_view path() const;                                 // without the query
  std::optional<std::string> query(std::string_view key) const;  // percent-decoded
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
};

// A handler that has nothing to say yet (long poll): the request is handled again when
// Server::wake() is called, and at the latest after `wait`; then `otherwise` is the answer if the
// handler returns Waiting once more. Only requests within body_bytes_max can wait (their body is
// kept).
struct Waiting {
  Duration wait;
  Response otherwise;
};

// A streaming answer (SSE). The head goes out at once; `next` is called after every wake() and
// every `heartbeat`, from one thread at a time; it returns text to send ("" = nothing new) or
// nullopt = end. With content type text/event-stream a heartbeat without news sends an SSE comment
// by itself.
struct Streaming {
  Response head;  // body empty
  Duration heartbeat;
  std::function<std::optional<std::string>()> next;
};

using Outcome = std::variant<Response, Waiting, Streaming>;

// Called on a server thread; must answer by calling `done` exactly once, from any thread, at any
// later time, also after the server is gone. `is_last_try` is true when a Waiting request has run
// out of time. A handler that throws, or drops `done` without calling it, is answered with 500.
using Done = std::function<void(Outcome)>;
using Handler = std::function<void(Request, bool is_last_try, Done)>;

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0 = any free one
  int threads = 2;
  size_t body_bytes_max = 1 << 20;           // other limits per route:
  size_t upload_body_bytes_max = 544 << 20;  // for targets that begin with upload_prefix
  std::string upload_prefix = "/v1/workdirs";
  int uploads_max = 4;  // bodies over body_bytes_max read at once; more are answered 503
  size_t header_bytes_max = 16 << 10;
  size_t connections_max = 4096;
  Duration idle_timeout = seconds(75);       // without a byte read or written
  Duration wake_interval = milliseconds(5);  // waits are looked at again at most this often
};

// An HTTP/1.1 server with keep-alive. start() binds (reason "port_in_use" names the port) and
// returns at once; wake() may be called from any thread. The destructor answers open waits with
// their `otherwise`, gives requests in work up to a second, then stops and joins; the handler is
// not called after it. Too large: 413 body_too_large, 431 header_too_large; too many: 503 with
// Retry-After.
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
// An unreachable server is kUnavailable, reason "server_unreachable"; too late is
// kDeadlineExceeded, "timed_out"; a connection lost after the request was sent is
// "connection_lost": kUnavailable when the request may be repeated (GET, HEAD, PUT, DELETE, or with
// Idempotency-Key), else kDeadlineExceeded.
class Client {
 public:
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  virtual ~Client() = default;
  virtual Result<Response> send(const Request& request, Duration timeout) = 0;
  // GET whose answer body is handed over piece by piece as it comes; `piece` returns false to stop.
  // Only a 2xx body goes to `piece`; that of an error is in the Response.
  virtual Result<Response> stream(const Request& request, Duration idle_timeout,
                                  std::function<bool(std::string_view)> piece) = 0;
  // From any thread: what is sent now or later ends as kCancelled, "cancelled".
  virtual void cancel() {}
};

// Percent-encoding of one path segment or query value.
std::string url_encode(std::string_view text);

}  // namespace anychip::net
