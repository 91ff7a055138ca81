// Internal to net: what a Done holds.
#pragma once

#include <atomic>
#include <memory>

#include "base/check.h"
#include "base/log.h"
#include "net/connection.h"
#include "net/problem.h"

namespace anychip::net {

inline Error error_for(Code code, std::string reason, std::string message, std::string hint = {}) {
  return Error{code, std::move(reason), std::move(message), std::move(hint), {}};
}

// Exactly one answer: a second one is our own bug; none at all becomes a 500.
class Answer {
 public:
  explicit Answer(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~Answer() {
    if (state_.exchange(kFailed) == kOpen) {
      give_problem("handler_gave_no_answer", "the request was dropped by its handler");
    }
  }
  void give(Outcome outcome) {
    const int before = state_.exchange(kGiven);
    CHECK_MSG(before != kGiven, "a request was answered twice");
    if (before == kFailed) return;  // the handler threw and its 500 is on the way
    pass(std::move(outcome));
  }
  void fail(std::string_view what) {
    log::error("net.handler_threw", {{"what", what}});
    int open = kOpen;
    if (state_.compare_exchange_strong(open, kFailed)) {
      give_problem("internal", "the handler of this request failed");
    }
  }

 private:
  enum { kOpen, kGiven, kFailed };
  void give_problem(std::string reason, std::string message) {
    pass(problem_response(error_for(Code::kInternal, std::move(reason), std::move(message))));
  }
  void pass(Outcome outcome) {
    // On the connection's own strand there is no need to queue; elsewhere the gate keeps a late
    // answer out of an io_context that nobody runs any more.
    if (connection_->strand().running_in_this_thread()) {
      connection_->on_outcome(std::move(outcome));
      return;
    }
    auto shared = std::make_shared<Outcome>(std::move(outcome));
    connection_->hub()->post(connection_->strand(), [connection = connection_, shared] {
      connection->on_outcome(std::move(*shared));
    });
  }

  std::atomic<int> state_{kOpen};
  const std::shared_ptr<Connection> connection_;
};

}  // namespace anychip::net
