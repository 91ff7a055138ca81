// Internal to net: one connection of the server, as a state machine on its own strand. Only wake(),
// drain(), close() and answer() may be called from other threads.
#pragma once

#include <array>
#include <optional>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "net/hub.h"

namespace anychip::net {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, Strand strand, std::shared_ptr<Hub> hub);
  ~Connection();

  void start();   // begins to read requests
  void refuse();  // answers 503 and closes
  void wake();
  void drain();  // closes as soon as the request in work is answered
  void close();
  bool is_waiting() const { return is_waiting_.load(); }

  const Strand& strand() const { return strand_; }
  const std::shared_ptr<Hub>& hub() const { return hub_; }
  void on_outcome(Outcome outcome);  // on the strand

 private:
  enum class State { kReading, kHandling, kWaiting, kStreaming, kSending, kLingering, kClosed };
  using ErrorCode = boost::beast::error_code;

  // Reading.
  void read_request();
  void read_more();
  void on_read(ErrorCode problem, size_t count);
  void parse();
  bool accept_head();  // false: the request was refused
  void send_continue();
  void handle();
  void reject(int status, Error error);  // answers, lingers, closes

  // Handling and waiting.
  void invoke(bool is_last_try);
  void begin_wait(Waiting waiting);
  void on_wake();
  void on_deadline();
  void watch_peer();
  void stop_watching();

  // Streaming.
  void begin_stream(Streaming streaming);
  void pump(bool is_heartbeat);
  void arm_heartbeat();
  void end_stream();

  // Sending.
  void send(Response response);
  enum class Framing { kLength, kChunked, kUntilClose };
  std::string head_text(const Response& response, Framing framing) const;
  void write(std::string head, std::string body, std::function<void()> then);
  void write_some();
  void finish_response();
  void linger();
  void discard_more();
  void shut();  // on the strand; idempotent

  const std::shared_ptr<Hub> hub_;  // first: the io_context outlives what is below
  const Strand strand_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer timer_;  // deadline of a wait, heartbeat of a stream, end of lingering
  uint64_t timer_id_ = 0;            // a completion with another id is of an earlier wait
  boost::beast::flat_buffer buffer_;
  State state_ = State::kReading;
  std::atomic<bool> is_waiting_{false};  // wants wake rounds
  bool is_draining_ = false;

  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  bool is_head_done_ = false;
  bool holds_upload_slot_ = false;
  Request request_;
  bool can_retry_ = true;
  bool is_head_method_ = false;
  bool is_http_1_0_ = false;
  bool keep_alive_ = true;
  bool must_linger_ = false;  // unread request bytes: closing at once would reset the answer away

  bool is_last_try_ = false;
  bool is_deadline_armed_ = false;
  bool is_deadline_passed_ = false;
  bool is_watching_ = false;
  uint64_t seen_wakes_ = 0;
  Response otherwise_;

  std::optional<Streaming> streaming_;
  bool is_event_stream_ = false;
  bool is_writing_chunk_ = false;
  bool pump_again_ = false;

  std::array<std::string, 2> out_;
  size_t out_sent_ = 0;
  std::function<void()> after_write_;
  size_t discarded_bytes_ = 0;
};

}  // namespace anychip::net
