#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/time.h"
#include "net/headers.h"
#include "net/http.h"
#include "net/url.h"

namespace anychip::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCode = beast::error_code;
using Parser = http::response_parser<http::string_body>;
using Piece = std::function<bool(std::string_view)>;

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kBufferBytesMax = 4 << 20;
constexpr uint32_t kHeaderBytesMax = 64 << 10;
constexpr uint64_t kBodyBytesMax = 1ull << 30;

bool may_repeat(const Request& request) {
  return request.method == "GET" || request.method == "HEAD" || request.method == "PUT" ||
         request.method == "DELETE" || !header(request.headers, "Idempotency-Key").empty();
}

// How one attempt on a connection ended without an answer.
struct Lost {
  enum class Stage { kConnect, kSend, kReceive };
  Stage stage;
  ErrorCode problem;
  bool has_answer_begun = false;
};

class ClientImpl final : public Client {
 public:
  ClientImpl(ClientOptions options, Url url) : options_(std::move(options)), url_(std::move(url)) {}

  Result<Response> send(const Request& request, Duration timeout) override {
    return exchange(request, timeout, nullptr, false);
  }

  Result<Response> stream(const Request& request, Duration idle_timeout, Piece piece) override {
    return exchange(request, idle_timeout, &piece, true);
  }

  void cancel() override {
    is_cancelled_.store(true);
    // Only closed here: resetting it would pull it away under an operation that has just succeeded.
    asio::post(io_, [this] {
      if (stream_) stream_->close();
    });
  }

 private:
  Result<Response> exchange(const Request& request, Duration timeout, const Piece* piece,
                            bool is_timeout_idle) {
    timeout_ = timeout;
    is_timeout_idle_ = is_timeout_idle;
    deadline_ = clock_.mono_now() + timeout;
    const std::string head = head_text(request);
    // A kept connection may have been closed by the server meanwhile; that is found out only now.
    for (bool was_kept = is_kept_usable();; was_kept = false) {
      if (is_cancelled_.load()) return cancelled();
      Response response;
      const auto lost = attempt(request, head, piece, response);
      if (!lost) return response;
      disconnect();
      const bool is_stale = was_kept && !lost->has_answer_begun &&
                            lost->problem != beast::error::timeout && may_repeat(request);
      if (!is_stale || is_cancelled_.load()) return error_of_lost(*lost, request);
    }
  }

  std::optional<Lost> attempt(const Request& request, std::string_view head, const Piece* piece,
                              Response& response) {
    if (!stream_) {
      if (const ErrorCode problem = connect()) return Lost{Lost::Stage::kConnect, problem};
    }
    const ErrorCode send_problem = write(head, request.body);
    // A server that refuses a large body answers and closes: its answer is worth reading.
    if (send_problem && send_problem != asio::error::broken_pipe &&
        send_problem != asio::error::connection_reset) {
      return Lost{Lost::Stage::kSend, send_problem};
    }
    return receive(request, piece, response);
  }

  std::string head_text(const Request& request) const {
    std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n", request.method, url_.prefix,
                                   request.target, url_.host_header());
    append_headers(text, request.headers);
    if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD")) {
      if (header(request.headers, "Content-Type").empty()) {
        text += "Content-Type: application/json\r\n";
      }
      text += fmt::format("Content-Length: {}\r\n", request.body.size());
    }
    return text + "\r\n";
  }

  // --- one asynchronous operation, waited for --------------------------------------------------
  template <class Start>
  ErrorCode wait_for(Start start) {
    const Duration left = is_timeout_idle_ ? timeout_ : deadline_ - clock_.mono_now();
    stream_->expires_after(std::chrono::microseconds(std::max<int64_t>(left.us, 0)));
    bool is_done = false;
    ErrorCode result;
    start([&](ErrorCode problem, auto&&...) {
      result = problem;
      is_done = true;
    });
    io_.restart();
    while (!is_done && io_.run_one() > 0) {
    }
    return result;
  }

  ErrorCode connect() {
    ErrorCode problem;
    stream_.emplace(io_);
    buffer_.clear();
    std::vector<tcp::endpoint> endpoints;
    const auto address = asio::ip::make_address(url_.host, problem);
    if (!problem) {
      endpoints.emplace_back(address, url_.port);
    } else {
      tcp::resolver resolver(io_);
      for (const auto& entry : resolver.resolve(url_.host, std::to_string(url_.port), problem)) {
        endpoints.push_back(entry.endpoint());
      }
      if (problem) return problem;
    }
    problem = wait_for([&](auto done) { stream_->async_connect(endpoints, std::move(done)); });
    if (!problem) {
      ErrorCode ignored;
      stream_->socket().set_option(tcp::no_delay(true), ignored);
    }
    return problem;
  }

  ErrorCode write(std::string_view head, std::string_view body) {
    size_t sent = 0;
    while (sent < head.size() + body.size()) {
      const size_t head_sent = std::min(sent, head.size());
      const std::array<asio::const_buffer, 2> rest{asio::buffer(head) + head_sent,
                                                   asio::buffer(body) + (sent - head_sent)};
      size_t count = 0;
      const ErrorCode problem = wait_for([&](auto done) {
        stream_->async_write_some(rest, [&count, done](ErrorCode result, size_t bytes) {
          count = bytes;
          done(result);
        });
      });
      if (problem) return problem;
      sent += count;
    }
    return {};
  }

  ErrorCode read_some() {
    if (buffer_.size() + kReadBytes > kBufferBytesMax) return http::error::buffer_overflow;
    size_t count = 0;
    const ErrorCode problem = wait_for([&](auto done) {
      stream_->async_read_some(buffer_.prepare(kReadBytes),
                               [&, done](ErrorCode result, size_t bytes) {
                                 count = bytes;
                                 done(result);
                               });
    });
    buffer_.commit(count);
    return problem;
  }

  std::optional<Lost> receive(const Request& request, const Piece* piece, Response& response) {
    Parser parser;
    parser.header_limit(kHeaderBytesMax);
    // A stream has no end to limit: what is handed over is freed.
    parser.body_limit(piece != nullptr ? boost::none : boost::optional<uint64_t>(kBodyBytesMax));
    parser.skip(request.method == "HEAD");
    while (!parser.is_done()) {
      ErrorCode problem;
      if (buffer_.size() > 0) {
        buffer_.consume(parser.put(buffer_.cdata(), problem));
        if (piece != nullptr && !hand_over(parser, *piece)) {
          disconnect();
          break;
        }
        if (!problem || problem != http::error::need_more) {
          if (problem) return Lost{Lost::Stage::kReceive, problem, true};
          if (buffer_.size() > 0 || parser.is_done()) continue;
        }
      }
      problem = read_some();
      if (problem == asio::error::eof && parser.got_some()) {
        parser.put_eof(problem);  // a body without a length ends so; anything else is cut short
        if (!problem && piece != nullptr) hand_over(parser, *piece);
      }
      if (problem) return Lost{Lost::Stage::kReceive, problem, parser.got_some()};
    }
    take(parser, response);
    return std::nullopt;
  }

  // False when `piece` wants no more.
  static bool hand_over(Parser& parser, const Piece& piece) {
    if (!parser.is_header_done() || parser.get().result_int() / 100 != 2) return true;
    std::string& body = parser.get().body();
    if (body.empty()) return true;
    const bool goes_on = piece(body);
    body.clear();
    return goes_on;
  }

  void take(Parser& parser, Response& response) {
    const bool keeps = parser.is_done() && parser.keep_alive() && !parser.need_eof();
    auto message = parser.release();
    response.status = static_cast<int>(message.result_int());
    for (const auto& field : message) {
      response.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    response.body = std::move(message.body());
    if (!keeps || buffer_.size() > 0) disconnect();
  }

  // --- the kept connection -----------------------------------------------------------------------
  bool is_kept_usable() {
    if (!stream_) return false;
    char byte = 0;
    const ssize_t got =
        ::recv(stream_->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    disconnect();  // closed, or bytes that nobody asked for
    return false;
  }

  void disconnect() {
    if (stream_) stream_->close();
    stream_.reset();
    buffer_.clear();
  }

  static tl::unexpected<Error> cancelled() {
    return fail(Code::kCancelled, "cancelled", "the request was cancelled");
  }

  Result<Response> error_of_lost(const Lost& lost, const Request& request) const {
    if (is_cancelled_.load()) return cancelled();
    if (lost.problem == beast::error::timeout && lost.stage != Lost::Stage::kConnect) {
      return fail(Code::kDeadlineExceeded, "timed_out",
                  fmt::format("{} did not answer within {} ms", options_.url, timeout_.ms()));
    }
    if (lost.stage == Lost::Stage::kConnect) {
      return fail(Code::kUnavailable, "server_unreachable",
                  fmt::format("cannot reach {}: {}", options_.url, lost.problem.message()),
                  "is the server running? `anychip up` starts one");
    }
    return fail(
        may_repeat(request) ? Code::kUnavailable : Code::kDeadlineExceeded, "connection_lost",
        fmt::format("the connection to {} was lost: {}", options_.url, lost.problem.message()));
  }

  const ClientOptions options_;
  const Url url_;
  asio::io_context io_;
  std::optional<beast::tcp_stream> stream_;
  beast::flat_buffer buffer_{kBufferBytesMax};
  std::atomic<bool> is_cancelled_{false};
  Duration timeout_;
  bool is_timeout_idle_ = false;
  const RealClock clock_;
  MonoTime deadline_;
};

}  // namespace

Result<std::unique_ptr<Client>> Client::create(ClientOptions options) {
  TRY(Url url, parse_url(options.url));
  return std::make_unique<ClientImpl>(std::move(options), std::move(url));
}

}  // namespace anychip::net
