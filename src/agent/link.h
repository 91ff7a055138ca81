// ServerLink over net::Client: three threads, one connection each, so that a long poll never holds
// up a report, nor a big workdir either of them.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/agent.h"

namespace anychip::agent {

class ThreadedLink final : public ServerLink {
 public:
  static Result<std::unique_ptr<ThreadedLink>> create(const std::string& url);
  ~ThreadedLink() override;  // what is under way is cancelled

  int64_t begin(net::Request request, Duration timeout) override;
  std::vector<Reply> take_replies() override;
  // Returns when a reply is there, wake() was called or `timeout` has passed.
  void wait(Duration timeout);
  void wake();

 private:
  struct Job {
    int64_t id = 0;
    net::Request request;
    Duration timeout;
  };
  struct Lane {
    std::unique_ptr<net::Client> client;
    std::deque<Job> jobs;
    std::condition_variable has_job;
    std::thread thread;
  };
  enum LaneIndex : size_t { kPoll, kReport, kStreams, kLanes };

  ThreadedLink() = default;
  static LaneIndex lane_of(const net::Request& request);
  void run(Lane& lane);

  std::mutex mutex_;
  std::condition_variable has_news_;
  bool is_ending_ = false, is_woken_ = false;
  int64_t last_id_ = 0;
  std::vector<Reply> replies_;
  Lane lanes_[kLanes];
};

}  // namespace anychip::agent
