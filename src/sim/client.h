// A user of the API: makes runs, switches, cancels, stops, reads, repeats itself with the same key,
// asks for nonsense; and remembers every answer the server gave, to hold it to its word.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sim/network.h"
#include "sim/server_host.h"
#include "sim/truth.h"

namespace anychip::sim {

struct ClientRun {
  std::string id, name, chip;
  int64_t steps_total = 0, save_every = 0;
  bool is_deleted = false, is_delete_asked = false, is_stop_asked = false;
  std::string last_state;
  std::vector<std::string> switches;           // acknowledged
  std::map<std::string, int64_t> metered_us;   // highest seen, by leg
};

class Client {
 public:
  struct Parts {
    EventQueue& queue;
    Random& random;
    const Faults& faults;
    Trace& trace;
    Truth& truth;
    Network& network;
    ServerHost& server;
    std::string admin_token;
  };
  Client(std::string name, Parts parts, int runs_wanted);

  void begin();
  void calm_down() { is_calm_ = true; }  // nothing new; what was asked is asked on until answered
  bool is_done() const;
  const std::string& token() const { return token_; }
  const std::vector<ClientRun>& runs() const { return runs_; }
  const std::string& name() const { return name_; }

 private:
  using Done = std::function<void(const net::Response&)>;
  net::Request request(std::string method, std::string target, json::object body = {});
  // One try; nullopt = no answer in time.
  void attempt(net::Request request, std::function<void(std::optional<net::Response>)> done);
  // Until the server has said yes or no.
  void insist(net::Request request, Done done);
  std::string new_key();
  void pause(int64_t least_ms, int64_t most_ms, std::function<void()> then);

  void make_account(int attempt_number);
  void upload_workdir();
  void make_run();
  void run_made(const net::Request& sent, const net::Response& response, ClientRun run);
  void repeat_with_same_key(net::Request sent, const net::Response& first);
  void act(size_t index);
  void read_run(size_t index);
  void saw_run(size_t index, const json::object& run);
  void ask_switch(size_t index);
  void cancel_switch(size_t index);
  void ask_stop(size_t index);
  void read_around(size_t index);
  void ask_nonsense(size_t index);
  void leave(size_t index);
  void expect_refusal(net::Request request, std::string code);

  std::string name_;
  Parts parts_;
  int runs_left_;
  bool is_calm_ = false, is_account_made_ = false;
  int open_ = 0;  // asked and not answered
  std::string token_, workdir_digest_;
  std::vector<ClientRun> runs_;
  std::vector<bool> is_left_;
  int keys_ = 0;
};

}  // namespace anychip::sim
