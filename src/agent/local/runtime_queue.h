// Operations for a few worker threads. Each names the objects it touches; two that share one run in
// the order given, others at once. begin() never blocks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/runtime.h"

namespace anychip::agent {

class OperationQueue {
 public:
  explicit OperationQueue(int workers);
  ~OperationQueue();  // stop()
  // `kind`: at most one operation of a kind other than "" runs at a time (image builds take minutes
  // and must not take all workers). is_reported false: take_done() does not tell of it.
  OperationId begin(std::set<std::string> keys, std::string kind, std::function<Status()> work,
                    bool is_reported = true);
  std::vector<OperationDone> take_done();
  void stop();  // what runs is waited for; what waits is dropped (the agent begins it again)

 private:
  struct Entry {
    OperationId id = 0;
    std::set<std::string> keys;
    std::string kind;
    std::function<Status()> work;
    bool is_reported = true;
    bool is_running = false;
  };
  void serve();
  Entry* next_locked();  // the oldest that may run; nullptr = none

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // oldest first, running ones included; a deque keeps references valid
  std::vector<OperationDone> done_;
  OperationId last_id_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace anychip::agent
