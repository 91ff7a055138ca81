// The server's machine: the real Core over the real store, killed and restarted. What net::Server
// does for long polls (handle again on wake, answer at the latest) is done here over virtual time.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "server/core.h"
#include "sim/events.h"
#include "sim/faults.h"
#include "sim/trace.h"

namespace anychip::sim {

class MemoryBlobs final : public server::Blobs {
 public:
  Status put(const std::string& digest, const std::string& bytes) override {
    blobs_[digest] = bytes;
    return {};
  }
  Result<std::string> get(const std::string& digest) override {
    const auto found = blobs_.find(digest);
    if (found == blobs_.end()) return fail(Code::kNotFound, "workdir_unknown", "no such workdir");
    return found->second;
  }
  bool has(const std::string& digest) override { return blobs_.contains(digest); }

 private:
  std::map<std::string, std::string> blobs_;
};

class CrashStore;

class ServerHost {
 public:
  using Answer = std::function<void(Result<net::Response>)>;

  struct Parts {
    EventQueue& queue;
    Random& random;
    Trace& trace;
    const catalog::Catalog& catalog;
    std::string database;  // a file; it survives the kills
  };
  ServerHost(Parts parts, server::CoreOptions options);
  ~ServerHost();

  void start();
  void kill();
  // The next write but a few takes the server down: before it, or after its commit and before the
  // answer. `then` is called once it is down.
  void crash_in_a_write(std::function<void()> then);
  bool is_up() const { return core_ != nullptr; }
  void handle(net::Request request, Answer answer);
  VirtualClock& clock() { return clock_; }
  int64_t count_5xx() const { return count_5xx_; }
  const std::string& first_5xx() const { return first_5xx_; }

 private:
  struct Open {
    int64_t id = 0;
    net::Request request;
    Answer answer;
    bool is_waiting = false;
    net::Response otherwise;
    MonoTime deadline;
  };
  void try_handle(int64_t id, bool is_last_try);
  void take(int64_t id, net::Outcome outcome, bool is_last_try);
  void answer(int64_t id, net::Response response);
  void wake();
  void tick(int64_t life);

  Parts parts_;
  server::CoreOptions options_;
  VirtualClock clock_;
  MemoryBlobs blobs_;
  std::unique_ptr<CrashStore> store_;
  std::unique_ptr<server::Core> core_;
  std::map<int64_t, Open> open_;
  int64_t last_id_ = 0, life_ = 0;
  bool is_wake_due_ = false;
  int64_t count_5xx_ = 0;
  std::string first_5xx_;
};

}  // namespace anychip::sim
