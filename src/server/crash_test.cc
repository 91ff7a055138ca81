// kill -9 of a real server process at every FAILPOINT that a run with a switch passes: the process
// is started again, the callers try again, and the story ends as if nothing had happened: no step
// lost, no second run or switch, nothing held, the bill exact.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "server/core_test.h"
#include "server/main.h"
#include "sys/files.h"

namespace anychip::server {
namespace {

class CrashTest : public CoreTest {
 protected:
  void SetUp() override { make_root(); }
  void TearDown() override {
    end_server();
    std::filesystem::remove_all(root_);
  }

  std::string data() const { return (root_ / "data").string(); }

  void start_server(const std::string& failpoints) {
    client_.reset();
    (void)sys::remove_file(data() + "/server/server.json");
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      ::setenv("ANYCHIP_FAILPOINTS", failpoints.c_str(), 1);
      const std::string log = root_.string() + "/server.log";
      if (std::freopen(log.c_str(), "a", stderr) == nullptr) ::_exit(3);
      ServerMainOptions options;
      options.data = data();
      options.installation_root = root_.string();
      options.share = root_.string() + "/share";
      const auto ended = run_server(options);
      if (!ended) std::fprintf(stderr, "%s\n", ended.error().to_string().c_str());
      ::_exit(ended ? *ended : 2);
    }
  }
  void end_server() {
    client_.reset();
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // The server that answers now; a dead one is started again, without failpoints.
  net::Client* client() {
    for (int tries = 0; client_ == nullptr && tries < 600; ++tries) {
      int status = 0;
      if (pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) == pid_) {
        kills_ += WIFSIGNALED(status) ? 1 : 0;
        start_server("");
      }
      const auto file = sys::read_file(data() + "/server/server.json");
      const auto parsed = file ? json::parse(*file) : fail(Code::kNotFound, "none", "none");
      if (!parsed) {
        ::usleep(20'000);
        continue;
      }
      const int64_t port = json::int_at(parsed->get_object(), "port");
      auto made = net::Client::create({fmt::format("http://127.0.0.1:{}", port), seconds(20)});
      EXPECT_TRUE(made.has_value());
      client_ = std::move(*made);
    }
    return client_.get();
  }
  net::Outcome deliver(net::Request request, bool) override {
    if (request.target == "/v1/runs" || request.target.ends_with("/switch")) {
      request.headers.emplace_back("Idempotency-Key", request.target);
    }
    for (int tries = 0; tries < 40; ++tries) {
      net::Client* to = client();
      if (to == nullptr) break;
      auto answer = to->send(request, seconds(20));
      if (answer) return std::move(*answer);
      client_.reset();
      ::usleep(50'000);  // a killed process takes a moment to be gone
    }
    ADD_FAILURE() << request.target << ": the server does not answer";
    return net::Response{599, {}, "{}"};
  }
  void tick() override { ::usleep(2'000); }  // it ticks by itself

  void tell_story() {
    const auto admin = [&] {
      (void)client();
      auto read = sys::read_file(data() + "/server/admin.token");
      return read ? read->substr(0, 64) : std::string();
    };
    token_ = json::string_at(call("POST", "/v1/accounts", {{"name", "me"}}, admin()).body, "token");
    const auto join = sys::read_file(data() + "/server/join.token");
    ASSERT_TRUE(join.has_value());
    const Answer enrolled =
        call("POST", "/agent/v1/enrol",
             {{"join_token", join->substr(0, 64)}, {"name", "node-1"}, {"protocol", 1}});
    node_id_ = json::string_at(enrolled.body, "node_id");
    node_key_ = json::string_at(enrolled.body, "node_key");
    report();
    ASSERT_EQ(start_run("demo").status, 201);
    ASSERT_TRUE(until_state("demo", "running"));
    send(current("demo"), "log", "hello\n");
    train(current("demo"), 1, 30);
    rounds(2);
    const Answer asked = post("/v1/runs/demo/switch", {{"chip", "sim-a"}});
    ASSERT_EQ(asked.status, 202) << asked.text;
    ASSERT_TRUE(
        until([&] { return json::string_at(last_switch("demo"), "step_name") == "verify"; }));
    train(current("demo"), 31, 36);
    send(current("demo"), "log", "world\n");
    ASSERT_TRUE(until([&] { return json::string_at(last_switch("demo"), "state") == "done"; }));
    rounds(2);
    exit(current("demo"), 0);
    ASSERT_TRUE(until_state("demo", "finished"));
    ASSERT_TRUE(until([&] { return json::array_at(desired(), "instances").empty(); }));
    ::usleep(150'000);  // at least one tick of its own
    (void)state("demo");
  }

  void check_story() {
    EXPECT_EQ(json::array_at(get("/v1/runs").body, "items").size(), 1u);
    EXPECT_EQ(json::array_at(get("/v1/runs/demo/switches").body, "items").size(), 1u);
    ASSERT_EQ(legs("demo").size(), 2u);
    EXPECT_EQ(json::string_at(get("/v1/runs/demo/logs").body, "text"), "hello\n");
    EXPECT_EQ(json::string_at(get("/v1/runs/demo/logs?after=6").body, "text"), "world\n");
    const json::object metrics = get("/v1/runs/demo/metrics").body;
    int64_t step = 0;
    for (const json::value& item : json::array_at(metrics, "items")) {
      EXPECT_EQ(json::int_at(item.as_object(), "step"), ++step);
    }
    EXPECT_EQ(step, 36);
    int64_t cost = 0;
    for (size_t i = 0; i < 2; ++i) {
      const json::object one = leg("demo", i);
      EXPECT_EQ(json::int_at(one, "cost_micros"), json::int_at(one, "price_micros_per_hour") *
                                                      json::int_at(one, "metered_us") /
                                                      3'600'000'000);
      cost += json::int_at(one, "cost_micros");
    }
    EXPECT_EQ(balance(), 10'000'000 - cost);
    const json::object offers = get("/v1/offers").body;
    for (const json::value& offer : json::array_at(offers, "items")) {
      EXPECT_EQ(json::int_at(offer.as_object(), "count_free"),
                json::int_at(offer.as_object(), "count_total"));
    }
  }

  pid_t pid_ = -1;
  int kills_ = 0;
  std::unique_ptr<net::Client> client_;
};

class KilledAt : public CrashTest, public testing::WithParamInterface<const char*> {};

TEST_P(KilledAt, TheStoryEndsAsIfNothingHadHappened) {
  start_server(std::string(GetParam()) + "=kill@1");
  tell_story();
  if (HasFatalFailure()) return;
  check_story();
  end_server();
  EXPECT_EQ(kills_, 1) << "the story does not pass " << GetParam();
}

// Before the commit that would tell it, once each.
INSTANTIATE_TEST_SUITE_P(
    Server, KilledAt,
    testing::Values("server.secret.make", "server.node.enrol", "server.report.applying",
                    "server.report.applied", "server.run.created", "server.run.saved",
                    "server.leg.opened", "server.run.running", "server.streams.stored",
                    "server.switch.check", "server.switch.reserved", "server.switch.reserve",
                    "server.switch.prepare", "server.switch.checkpoint", "server.switch.inherit",
                    "server.switch.resume", "server.switch.verify", "server.switch.settle",
                    "server.switch.done", "server.leg.ended", "server.run.finished",
                    "server.tick"));

class KilledLater : public CrashTest, public testing::WithParamInterface<int> {};

// After a commit and before its answer, at the Nth request: the caller hears nothing and asks
// again.
TEST_P(KilledLater, WhatWasCommittedButNotAnsweredHappensOnce) {
  start_server(fmt::format("server.request.committed=kill@{}", GetParam()));
  tell_story();
  if (HasFatalFailure()) return;
  check_story();
  EXPECT_EQ(kills_, 1);
}
INSTANTIATE_TEST_SUITE_P(Server, KilledLater, testing::Values(2, 4, 6, 9, 12, 15, 20));

}  // namespace
}  // namespace anychip::server
