// For tests of the Core: a small catalogue, a clock that stands until moved, a store in memory, and
// a hand-made node that does what Desired says at once, unless told otherwise.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/rng.h"
#include "server/core.h"

namespace anychip::server {

class StillClock final : public Clock {
 public:
  WallTime wall_now() const override { return {1'800'000'000'000'000 + mono_us_}; }
  MonoTime mono_now() const override { return {mono_us_}; }
  void move(Duration by) { mono_us_ += by.us; }

 private:
  int64_t mono_us_ = 1'000'000;
};

class MemoryBlobs final : public Blobs {
 public:
  Status put(const std::string& digest, const std::string& bytes) override {
    blobs_[digest] = bytes;
    return {};
  }
  Result<std::string> get(const std::string& digest) override {
    const auto found = blobs_.find(digest);
    if (found == blobs_.end()) return fail(Code::kNotFound, "workdir_not_found", "not there");
    return found->second;
  }
  bool has(const std::string& digest) override { return blobs_.contains(digest); }

 private:
  std::map<std::string, std::string> blobs_;
};

// An "archive" here is a comma-separated list of file names.
class NameWorkdirs final : public Workdirs {
 public:
  Result<std::vector<std::string>> list(const std::string& bytes) override;
  Result<std::string> digest_of(const catalog::Template& of) override;
};

struct Answer {
  int status = 0;
  json::object body;
  std::string text;  // when it is no JSON object
  bool is_waiting = false;
  std::string code() const { return json::string_at(body, "code"); }
  std::set<std::string> codes() const;  // of errors[]
};

class CoreTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Answer call(const std::string& method, const std::string& target, const json::object& body = {},
              const std::string& token = "", net::Headers headers = {}, bool is_last_try = false);
  // How a request reaches the Core, and its tick: a test with a process overrides both.
  virtual net::Outcome deliver(net::Request request, bool is_last_try);
  virtual void tick() { core_->tick(); }
  void make_root();
  Answer get(const std::string& target) { return call("GET", target, {}, token_); }
  Answer post(const std::string& target, const json::object& body = {}) {
    return call("POST", target, body, token_);
  }
  std::string new_account(const std::string& name);  // its token
  Answer start_run(const std::string& name, const std::string& chip = "cpu",
                   json::object more = {});
  json::object run(const std::string& name) { return get("/v1/runs/" + name).body; }
  std::string state(const std::string& name) { return json::string_at(run(name), "state"); }
  json::array legs(const std::string& name) { return json::array_at(run(name), "legs"); }
  json::object leg(const std::string& name, size_t index) {
    return legs(name).at(index).as_object();
  }
  json::object last_switch(const std::string& name) { return json::object_at(run(name), "switch"); }
  int64_t balance() { return json::int_at(get("/v1/account").body, "balance_micros"); }

  // --- the node ---------------------------------------------------------------------------------
  struct Container {
    json::object spec;
    std::string phase = "preparing";
    int64_t ran_us = 0;
    std::optional<int64_t> exit_code, stop_seen_ran_us;
    bool is_oom = false, is_supervisor_lost = false, has_run = false, are_streams_sent = false;
    std::string error;
    std::map<std::string, int64_t> sent;  // bytes of each stream
  };
  void enrol_node();
  json::object desired();
  // One round: fetches Desired, does what it says, time passes, reports, the Core ticks.
  void round(Duration pass = milliseconds(500));
  void rounds(int count, Duration pass = milliseconds(500)) {
    while (count-- > 0) round(pass);
  }
  // Rounds until `holds`, at most 60.
  bool until(const std::function<bool()>& holds);
  bool until_state(const std::string& name, const std::string& wanted) {
    return until([&] { return state(name) == wanted; });
  }
  json::object make_report();
  Answer report();
  Answer send_report(const json::object& report) {
    return call("POST", "/agent/v1/report", report, node_key_);
  }
  Container& current(const std::string& run_name);  // the container of its newest leg that is alive
  Container& container(const std::string& instance) { return containers_.at(instance); }
  Answer send(Container& of, const std::string& stream, const std::string& data);
  // Metric lines of steps [first, last] with a falling loss.
  void train(Container& of, int64_t first, int64_t last, double shift = 0);
  void exit(Container& of, int64_t code);

  std::filesystem::path root_;
  std::optional<catalog::Catalog> catalog_;
  StillClock clock_;
  SeededRandom random_{7};
  MemoryBlobs blobs_;
  NameWorkdirs workdirs_;
  std::unique_ptr<store::Store> store_;
  CoreOptions options_;
  std::unique_ptr<Core> core_;
  std::string token_;

  std::string node_id_, node_key_, boot_ = "boot-1";
  int64_t sequence_ = 0;
  std::map<std::string, Container> containers_;
  std::map<std::string, std::string> volumes_, snapshots_;  // id -> state
  std::set<std::string> lost_devices_;
  std::set<std::string> images_failing_, snapshots_failing_;  // variants; any word = all
  bool obeys_stop_ = true, is_answering_ = true;
};

}  // namespace anychip::server
