// Internal to net: what a server, its connections and every Done that is still held share. It
// outlives the Server as long as a Done does, but after close_gate() nothing enters its io_context
// any more, so a late Done touches memory only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "net/http.h"

namespace anychip::net {

class Connection;
using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

class Hub : public std::enable_shared_from_this<Hub> {
 public:
  Hub(ServerOptions options, Handler handler);

  boost::asio::io_context io;
  const ServerOptions options;
  Handler handler;                 // cleared once the threads are joined
  std::atomic<uint64_t> wakes{0};  // how often wake() was called: a wait compares it to miss none
  std::atomic<int> uploads{0};     // large bodies being read or handled

  enum class Admission { kServe, kRefuse, kDrop };
  // kServe below connections_max; some more are kept just long enough to be told 503.
  Admission admit(const std::shared_ptr<Connection>& connection);
  void remove(const Connection* connection);
  std::vector<std::shared_ptr<Connection>> connections();
  void wait_until_empty(Duration at_most);

  // Runs `work` on the strand, unless the gate is closed. From any thread.
  bool post(const Strand& strand, std::function<void()> work);
  void close_gate();

  void wake();
  // Lets every waiting connection look again, at most once per wake_interval. From any thread.
  void schedule_round();

 private:
  void arm_round();
  void run_round();

  std::mutex mutex_;  // guards the members down to refused_
  std::condition_variable emptied_;
  bool is_open_ = true;
  struct Entry {
    std::weak_ptr<Connection> connection;
    bool is_refused = false;
  };
  std::unordered_map<const Connection*, Entry> connections_;
  size_t refused_ = 0;

  std::atomic<bool> is_round_scheduled_{false};
  Strand round_strand_;  // runs the rounds; guards the timer and last_round_
  boost::asio::steady_timer round_timer_;
  const RealClock clock_;
  MonoTime last_round_;
};

}  // namespace anychip::net
