#include "net/connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include <fmt/format.h>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/read.hpp>

#include "base/log.h"
#include "net/answer.h"
#include "net/headers.h"
#include "net/problem.h"

namespace anychip::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr size_t kHeadReadBytes = 8 << 10;
constexpr size_t kBodyReadBytes = 128 << 10;
constexpr size_t kBufferBytesMax = 1 << 20;
constexpr std::chrono::seconds kLingerMax{3};
constexpr size_t kLingerBytesMax = 256 << 20;

std::chrono::microseconds chrono_of(Duration duration) {
  return std::chrono::microseconds(duration.us);
}

bool has_body(int status) { return status >= 200 && status != 204 && status != 304; }

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, Strand strand, std::shared_ptr<Hub> hub)
    : hub_(std::move(hub)),
      strand_(std::move(strand)),
      stream_(std::move(socket)),
      timer_(strand_),
      buffer_(kBufferBytesMax) {
  beast::error_code ignored;
  const auto endpoint = stream_.socket().remote_endpoint(ignored);
  if (!ignored) request_.peer = endpoint.address().to_string();
}

Connection::~Connection() { hub_->remove(this); }

void Connection::start() { read_request(); }

void Connection::refuse() {
  must_linger_ = true;
  reject(503, error_for(Code::kUnavailable, "too_many_connections",
                        fmt::format("all {} connections are taken", hub_->options.connections_max),
                        "try again in a second"));
}

void Connection::wake() {
  hub_->post(strand_, [self = shared_from_this()] { self->on_wake(); });
}

void Connection::drain() {
  hub_->post(strand_, [self = shared_from_this()] {
    self->is_draining_ = true;
    switch (self->state_) {
      case State::kHandling:
      case State::kSending: self->keep_alive_ = false; break;
      case State::kWaiting: self->send(std::move(self->otherwise_)); break;
      default: self->shut();
    }
  });
}

// Posted past the gate: the server calls this while its threads still run.
void Connection::close() {
  asio::post(strand_, [self = shared_from_this()] { self->shut(); });
}

void Connection::shut() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  is_waiting_.store(false);
  ++timer_id_;
  timer_.cancel();
  stream_.close();
  streaming_.reset();
  after_write_ = nullptr;
  if (holds_upload_slot_) hub_->uploads.fetch_sub(1);
  holds_upload_slot_ = false;
  hub_->remove(this);
}

// --- reading -------------------------------------------------------------------------------------

void Connection::read_request() {
  state_ = State::kReading;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(hub_->options.header_bytes_max));
  parser_->body_limit(boost::none);  // set by route once the target is known
  is_head_done_ = false;
  can_retry_ = true;
  is_last_try_ = is_deadline_armed_ = is_deadline_passed_ = false;
  parse();
}

void Connection::read_more() {
  const size_t count = is_head_done_ ? kBodyReadBytes : kHeadReadBytes;
  if (buffer_.size() + count > kBufferBytesMax) {
    return reject(400,
                  error_for(Code::kInvalidArgument, "http_malformed", "a chunk head is too long"));
  }
  stream_.expires_after(chrono_of(hub_->options.idle_timeout));
  stream_.async_read_some(
      buffer_.prepare(count),
      [self = shared_from_this()](ErrorCode problem, size_t got) { self->on_read(problem, got); });
}

void Connection::on_read(ErrorCode problem, size_t count) {
  if (state_ != State::kReading) return;
  if (problem) return shut();  // the peer closed, or was idle for too long
  buffer_.commit(count);
  parse();
}

void Connection::parse() {
  for (;;) {
    if (parser_->is_done()) return handle();
    if (buffer_.size() == 0) return read_more();
    ErrorCode problem;
    buffer_.consume(parser_->put(buffer_.cdata(), problem));
    if (problem == http::error::need_more) return read_more();
    if (problem == http::error::header_limit) {
      return reject(431, error_for(Code::kInvalidArgument, "header_too_large",
                                   fmt::format("the request's headers are larger than {} bytes",
                                               hub_->options.header_bytes_max)));
    }
    if (problem == http::error::body_limit) {
      return reject(413, error_for(Code::kInvalidArgument, "body_too_large",
                                   "the request's body is larger than allowed"));
    }
    if (problem) {
      return reject(400, error_for(Code::kInvalidArgument, "http_malformed",
                                   "this is not an HTTP request: " + problem.message()));
    }
    if (!is_head_done_ && parser_->is_header_done()) {
      is_head_done_ = true;
      if (!accept_head()) return;
      const auto& head = parser_->get();
      if (!parser_->is_done() && head.version() >= 11 &&
          beast::iequals(head[http::field::expect], "100-continue")) {
        return send_continue();
      }
    }
  }
}

bool Connection::accept_head() {
  const ServerOptions& options = hub_->options;
  const auto& head = parser_->get();
  is_http_1_0_ = head.version() < 11;
  is_head_method_ = head.method() == http::verb::head;
  const bool is_upload = std::string_view(head.target()).starts_with(options.upload_prefix);
  const size_t limit = is_upload ? options.upload_body_bytes_max : options.body_bytes_max;
  const auto length = parser_->content_length();
  if (length && *length > limit) {
    reject(413, error_for(Code::kInvalidArgument, "body_too_large",
                          fmt::format("the body has {} bytes, allowed are {}", *length, limit)));
    return false;
  }
  parser_->body_limit(limit);
  // Of a chunked body the size is unknown: it takes a slot when its route allows a large one.
  const bool is_large = length ? *length > options.body_bytes_max : is_upload && parser_->chunked();
  if (!is_large) return true;
  if (hub_->uploads.fetch_add(1) >= options.uploads_max) {
    hub_->uploads.fetch_sub(1);
    reject(503, error_for(Code::kUnavailable, "too_many_uploads",
                          fmt::format("{} uploads are running", options.uploads_max),
                          "try again in a few seconds"));
    return false;
  }
  holds_upload_slot_ = true;
  return true;
}

void Connection::send_continue() {
  write("HTTP/1.1 100 Continue\r\n\r\n", {}, [this] {
    state_ = State::kReading;
    parse();
  });
}

void Connection::handle() {
  keep_alive_ = parser_->keep_alive() && !is_draining_;
  auto message = parser_->release();
  parser_.reset();
  request_.method = std::string(message.method_string());
  request_.target = std::string(message.target());
  request_.headers.clear();
  for (const auto& field : message) {
    request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request_.body = std::move(message.body());
  can_retry_ = request_.body.size() <= hub_->options.body_bytes_max;
  if (buffer_.size() == 0) buffer_.shrink_to_fit();  // an upload's buffer would stay for good
  invoke(false);
}

void Connection::reject(int status, Error error) {
  keep_alive_ = false;
  must_linger_ = true;
  send(problem_response(error, status));
}

// --- handling and waiting
// --------------------------------------------------------------------------

void Connection::invoke(bool is_last_try) {
  state_ = State::kHandling;
  is_waiting_.store(false);
  is_last_try_ = is_last_try;
  seen_wakes_ = hub_->wakes.load();
  const auto answer = std::make_shared<Answer>(shared_from_this());
  try {
    Request request = request_.body.empty() || can_retry_
                          ? request_
                          : Request{request_.method, request_.target, request_.headers,
                                    std::move(request_.body), request_.peer};
    hub_->handler(std::move(request), is_last_try,
                  [answer](Outcome outcome) { answer->give(std::move(outcome)); });
  } catch (const std::exception& problem) {
    answer->fail(problem.what());
  } catch (...) {
    answer->fail("not a std::exception");
  }
}

void Connection::on_outcome(Outcome outcome) {
  if (state_ != State::kHandling) return;  // closed meanwhile
  if (auto* response = std::get_if<Response>(&outcome)) return send(std::move(*response));
  if (auto* waiting = std::get_if<Waiting>(&outcome)) return begin_wait(std::move(*waiting));
  begin_stream(std::move(std::get<Streaming>(outcome)));
}

void Connection::begin_wait(Waiting waiting) {
  if (is_last_try_ || is_draining_) return send(std::move(waiting.otherwise));
  if (!can_retry_) {
    return send(problem_response(
        error_for(Code::kInternal, "wait_refused", "a request with a large body cannot wait")));
  }
  otherwise_ = std::move(waiting.otherwise);
  if (!is_deadline_armed_) {  // the first `wait` counts, however often the request is looked at
    is_deadline_armed_ = true;
    timer_.expires_after(chrono_of(waiting.wait));
    timer_.async_wait([self = shared_from_this(), id = ++timer_id_](ErrorCode problem) {
      if (!problem && id == self->timer_id_) self->on_deadline();
    });
    watch_peer();
  }
  if (is_deadline_passed_) return invoke(true);
  state_ = State::kWaiting;
  is_waiting_.store(true);
  // A wake() between the handler's look and this line found nobody waiting: look again.
  if (hub_->wakes.load() != seen_wakes_) hub_->schedule_round();
}

void Connection::on_wake() {
  if (state_ == State::kWaiting) {
    invoke(false);
  } else if (state_ == State::kStreaming) {
    pump(false);
  }
}

void Connection::on_deadline() {
  is_deadline_passed_ = true;
  if (state_ == State::kWaiting) invoke(true);  // else the handler is at work: begin_wait sees it
}

// A waiting client sends nothing. Readable means it closed (drop the wait) or pipelines the next
// request (leave the bytes; its going away is then noticed at the next write).
void Connection::watch_peer() {
  is_watching_ = true;
  stream_.socket().async_wait(
      asio::socket_base::wait_read, [self = shared_from_this(), id = timer_id_](ErrorCode problem) {
        if (problem || id != self->timer_id_ || self->state_ == State::kClosed) return;
        self->is_watching_ = false;
        char byte = 0;
        const ssize_t got =
            ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0) return;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return self->watch_peer();
        self->shut();
      });
}

void Connection::stop_watching() {
  ++timer_id_;
  timer_.cancel();
  is_waiting_.store(false);
  if (!is_watching_) return;
  is_watching_ = false;
  ErrorCode ignored;
  stream_.socket().cancel(ignored);  // nothing else is outstanding when this is called
}

// --- streaming
// -------------------------------------------------------------------------------------

void Connection::begin_stream(Streaming streaming) {
  stop_watching();
  if (is_http_1_0_ || is_head_method_) keep_alive_ = false;
  const std::string head =
      head_text(streaming.head, is_http_1_0_ ? Framing::kUntilClose : Framing::kChunked);
  if (is_head_method_) return write(head, {}, [this] { finish_response(); });
  is_event_stream_ =
      header(streaming.head.headers, "Content-Type").starts_with("text/event-stream");
  streaming_ = std::move(streaming);
  ++timer_id_;
  is_writing_chunk_ = false;
  pump_again_ = true;  // `next` is asked once the head is out
  is_waiting_.store(true);
  arm_heartbeat();
  watch_peer();
  is_writing_chunk_ = true;
  write(head, {}, [this] {
    is_writing_chunk_ = false;
    pump_again_ = false;
    pump(false);
  });
  state_ = State::kStreaming;
}

void Connection::arm_heartbeat() {
  timer_.expires_after(chrono_of(streaming_->heartbeat));
  timer_.async_wait([self = shared_from_this(), id = timer_id_](ErrorCode problem) {
    if (problem || id != self->timer_id_ || self->state_ != State::kStreaming) return;
    self->arm_heartbeat();
    self->pump(true);
  });
}

void Connection::pump(bool is_heartbeat) {
  if (is_writing_chunk_) {
    pump_again_ = true;
    return;
  }
  if (is_draining_) return shut();
  std::optional<std::string> text;
  try {
    text = streaming_->next();
  } catch (const std::exception& problem) {
    log::error("net.stream_threw", {{"what", problem.what()}});
    return shut();  // the client sees a cut stream, not a complete one
  }
  if (!text) return end_stream();
  if (text->empty() && is_heartbeat && is_event_stream_) text = ": \n\n";
  if (text->empty()) return;
  if (!is_http_1_0_) text = fmt::format("{:x}\r\n{}\r\n", text->size(), *text);
  is_writing_chunk_ = true;
  write(std::move(*text), {}, [this] {
    is_writing_chunk_ = false;
    if (std::exchange(pump_again_, false)) pump(false);
  });
  state_ = State::kStreaming;
}

void Connection::end_stream() {
  stop_watching();
  streaming_.reset();
  write(is_http_1_0_ ? "" : "0\r\n\r\n", {}, [this] { finish_response(); });
}

// --- sending
// ---------------------------------------------------------------------------------------

void Connection::send(Response response) {
  stop_watching();
  std::string head = head_text(response, Framing::kLength);
  if (is_head_method_ || !has_body(response.status)) response.body.clear();
  write(std::move(head), std::move(response.body), [this] { finish_response(); });
}

std::string Connection::head_text(const Response& response, Framing framing) const {
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  append_headers(text, response.headers);
  if (header(response.headers, "Content-Type").empty() && !response.body.empty()) {
    text += "Content-Type: application/json\r\n";
  }
  if (framing == Framing::kChunked) {
    text += "Transfer-Encoding: chunked\r\n";
  } else if (framing == Framing::kLength && has_body(response.status)) {
    text += fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  if (!keep_alive_) {
    text += "Connection: close\r\n";
  } else if (is_http_1_0_) {
    text += "Connection: keep-alive\r\n";
  }
  return text + "\r\n";
}

void Connection::write(std::string head, std::string body, std::function<void()> then) {
  state_ = State::kSending;
  out_ = {std::move(head), std::move(body)};
  out_sent_ = 0;
  after_write_ = std::move(then);
  write_some();
}

// Piece by piece, so that idle_timeout bounds a stall and not the whole of a large answer.
void Connection::write_some() {
  const size_t head_sent = std::min(out_sent_, out_[0].size());
  const std::array<asio::const_buffer, 2> rest{asio::buffer(out_[0]) + head_sent,
                                               asio::buffer(out_[1]) + (out_sent_ - head_sent)};
  if (asio::buffer_size(rest) == 0) {
    out_ = {};
    return std::exchange(after_write_, nullptr)();
  }
  stream_.expires_after(chrono_of(hub_->options.idle_timeout));
  stream_.async_write_some(rest, [self = shared_from_this()](ErrorCode problem, size_t count) {
    if (self->state_ == State::kClosed) return;
    if (problem) return self->shut();
    self->out_sent_ += count;
    self->write_some();
  });
}

void Connection::finish_response() {
  if (holds_upload_slot_) hub_->uploads.fetch_sub(1);
  holds_upload_slot_ = false;
  request_.body = {};
  if (keep_alive_ && !is_draining_) return read_request();
  if (must_linger_) return linger();
  ErrorCode ignored;
  stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  shut();
}

// Reads on for a while without looking, so that the answer is not lost to a connection reset.
void Connection::linger() {
  if (is_draining_) return shut();
  state_ = State::kLingering;
  ErrorCode ignored;
  stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  timer_.expires_after(kLingerMax);
  timer_.async_wait([self = shared_from_this(), id = ++timer_id_](ErrorCode problem) {
    if (!problem && id == self->timer_id_) self->shut();
  });
  buffer_.clear();
  discard_more();
}

void Connection::discard_more() {
  stream_.expires_after(kLingerMax);
  stream_.async_read_some(buffer_.prepare(kBodyReadBytes),
                          [self = shared_from_this()](ErrorCode problem, size_t count) {
                            self->discarded_bytes_ += count;
                            if (problem || self->discarded_bytes_ > kLingerBytesMax) {
                              return self->shut();
                            }
                            self->discard_more();
                          });
}

}  // namespace anychip::net
