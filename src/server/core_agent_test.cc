// The agent's half of the contract: level-triggered desired state, reports that come late, twice or
// out of order, streams by offset.
#include "server/core_test.h"

#include "base/failpoint.h"

namespace anychip::server {
namespace {

class AgentApiTest : public CoreTest {
 protected:
  std::string log(const std::string& query = "") {
    return json::string_at(get("/v1/runs/demo/logs" + query).body, "text");
  }
};

TEST_F(AgentApiTest, DesiredIsVersionedAndWaits) {
  const int64_t version = json::int_at(desired(), "version");
  const std::string target = "/agent/v1/desired?wait_s=20&after=" + std::to_string(version);
  EXPECT_TRUE(call("GET", target, {}, node_key_).is_waiting);
  EXPECT_EQ(call("GET", target, {}, node_key_, {}, true).status, 204);
  ASSERT_EQ(start_run("demo").status, 201);
  const Answer newer = call("GET", target, {}, node_key_);
  ASSERT_EQ(newer.status, 200);
  EXPECT_GT(json::int_at(newer.body, "version"), version);
  EXPECT_EQ(json::array_at(newer.body, "instances").size(), 1u);
  EXPECT_EQ(json::array_at(newer.body, "volumes").size(), 2u);
  EXPECT_EQ(json::array_at(newer.body, "images").size(), 1u);
  // A node that comes from a newer database gets the whole state at once.
  EXPECT_EQ(call("GET", "/agent/v1/desired?wait_s=20&after=999999", {}, node_key_).status, 200);
  // Nothing changes while nothing happens.
  const int64_t before = json::int_at(desired(), "version");
  for (int i = 0; i < 5; ++i) core_->tick();
  EXPECT_EQ(json::int_at(desired(), "version"), before);
}

TEST_F(AgentApiTest, ReportsApplyOnceWhateverTheirOrder) {
  ASSERT_EQ(start_run("demo").status, 201);
  round();
  const json::object early = make_report();
  rounds(3);
  train(current("demo"), 1, 3);
  exit(current("demo"), 0);
  rounds(2);
  ASSERT_TRUE(until_state("demo", "finished"));
  const int64_t metered = json::int_at(leg("demo", 0), "metered_us");
  send_report(early);  // late
  core_->tick();
  EXPECT_EQ(state("demo"), "finished");
  EXPECT_EQ(json::int_at(leg("demo", 0), "metered_us"), metered);
  boot_ = "boot-2";
  sequence_ = 0;
  report();  // a new boot begins at 1 again
  json::object from_old_boot = early;
  from_old_boot["sequence"] = 1'000'000;
  send_report(from_old_boot);  // from before the reboot, ever so late
  bool is_new = false;
  store_->read([&](store::Db& db) {
    is_new = (*db.query("SELECT boot_id FROM nodes")).at(0).text(0) == "boot-2";
  });
  EXPECT_TRUE(is_new);
}

TEST_F(AgentApiTest, ANodeSpeaksForItselfAndReenrolsUnderItsName) {
  json::object foreign = make_report();
  foreign["node_id"] = "nod_other";
  EXPECT_EQ(send_report(foreign).code(), "node_mismatch");
  const std::string id = node_id_, key = node_key_;
  enrol_node();
  EXPECT_EQ(node_id_, id);
  EXPECT_NE(node_key_, key);
  EXPECT_EQ(call("GET", "/agent/v1/desired?wait_s=0", {}, key).status, 401)
      << "the old key is dead";
}

TEST_F(AgentApiTest, StreamsAppendOnlyWhereTheyBelong) {
  ASSERT_EQ(start_run("demo").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  const std::string leg_id = json::string_at(current("demo").spec, "leg_id");
  const auto chunk = [&](int64_t offset, const std::string& data,
                         const std::string& stream = "log") {
    const Answer sent =
        call("POST", "/agent/v1/streams",
             {{"chunks",
               json::array{json::object{
                   {"leg_id", leg_id}, {"stream", stream}, {"offset", offset}, {"data", data}}}}},
             node_key_);
    const json::array acked = json::array_at(sent.body, "acked");
    return acked.empty() ? -1 : json::int_at(acked.at(0).as_object(), "offset");
  };
  EXPECT_EQ(chunk(6, "world\n"), 0);
  EXPECT_EQ(chunk(0, "hello\n"), 6);
  EXPECT_EQ(chunk(0, "hello\n"), 6);
  EXPECT_EQ(chunk(6, "world\n"), 12);
  EXPECT_EQ(log(), "hello\nworld\n");
  EXPECT_EQ(log("?after=3"), "lo\nworld\n");
  EXPECT_EQ(log("?after=8&limit_bytes=2"), "rl");
  EXPECT_EQ(chunk(12, "好\n"), 16);
  EXPECT_EQ(log("?after=11&limit_bytes=3"), "\n") << "never cut inside a character";
  const std::string line = "{\"step\":1,\"loss\":2.5,\"step_s\":0.1,\"tokens_s\":10,\"t\":1.0}\n";
  const auto half = static_cast<int64_t>(10);
  EXPECT_EQ(chunk(0, line.substr(0, 10), "metrics"), half);
  EXPECT_TRUE(json::array_at(get("/v1/runs/demo/metrics").body, "items").empty());
  EXPECT_EQ(chunk(half, line.substr(10), "metrics"), static_cast<int64_t>(line.size()));
  EXPECT_EQ(json::array_at(get("/v1/runs/demo/metrics").body, "items").size(), 1u);
  const int64_t at = static_cast<int64_t>(line.size());
  EXPECT_EQ(chunk(at, "no json\n\n{\"step\":\"x\"}\n", "metrics"), at + 22);
  EXPECT_EQ(json::array_at(get("/v1/runs/demo/metrics").body, "items").size(), 1u);
  const Answer unknown =
      call("POST", "/agent/v1/streams",
           {{"chunks", json::array{json::object{
                           {"leg_id", "leg_x"}, {"stream", "log"}, {"offset", 0}, {"data", "x"}}}}},
           node_key_);
  EXPECT_TRUE(json::array_at(unknown.body, "acked").empty());
}

TEST_F(AgentApiTest, LogsWaitForMoreAndEndWithTheRun) {
  ASSERT_EQ(start_run("demo").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  send(current("demo"), "log", "one\n");
  EXPECT_EQ(log("?wait_s=10"), "one\n");
  EXPECT_TRUE(call("GET", "/v1/runs/demo/logs?after=4&wait_s=10", {}, token_).is_waiting);
  train(current("demo"), 1, 2);
  exit(current("demo"), 1);
  ASSERT_TRUE(until([&] { return legs("demo").size() == 2 && state("demo") == "running"; }));
  send(current("demo"), "log", "two\n");
  EXPECT_EQ(log("?after=4"), "two\n") << "legs one after the other";
  EXPECT_EQ(log("?leg=1"), "two\n");
  exit(current("demo"), 0);
  ASSERT_TRUE(until_state("demo", "finished"));
  rounds(2);
  const json::object end = get("/v1/runs/demo/logs?after=8&wait_s=10").body;
  EXPECT_TRUE(json::bool_at(end, "ended"));
}

TEST_F(AgentApiTest, SamplesStatsAndEventsReachTheUser) {
  ASSERT_EQ(start_run("demo", "sim-a").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  send(current("demo"), "metrics",
       "{\"event\":\"start\",\"device\":\"tpu\",\"accelerator\":\"tpu:0\"}\n"
       "{\"event\":\"device_stats\",\"executions\":7,\"compiles\":2,\"peak_bytes\":4096}\n"
       "{\"event\":\"sample\",\"step\":3,\"prompt\":\"春\",\"text\":\"春眠不覺曉\"}\n"
       "{\"event\":\"checkpoint\",\"step\":3}\n");
  train(current("demo"), 1, 5);
  const json::object first = leg("demo", 0);
  EXPECT_EQ(json::string_at(first, "device"), "tpu:0");
  EXPECT_EQ(json::int_at(first, "executions"), 7);
  EXPECT_EQ(json::int_at(first, "peak_memory_bytes"), 4096);
  EXPECT_EQ(json::string_at(first, "memory_source"), "device");
  EXPECT_EQ(json::string_at(json::object_at(first, "sample"), "text"), "春眠不覺曉");
  const json::array events = json::array_at(get("/v1/runs/demo/events").body, "items");
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(json::string_at(events.at(0).as_object(), "kind"), "run.created");
  const int64_t last = json::int_at(events.back().as_object(), "seq");
  EXPECT_TRUE(call("GET", "/v1/runs/demo/events?wait_s=5&after=" + std::to_string(last), {}, token_)
                  .is_waiting);
}

TEST_F(AgentApiTest, CompareAgainstItsReference) {
  ASSERT_EQ(start_run("demo").status, 201);
  ASSERT_EQ(start_run("alone", "cpu", {{"reference_of", "demo"}}).status, 201);
  ASSERT_TRUE(until([&] { return state("demo") == "running" && state("alone") == "running"; }));
  const auto grade = [&] { return json::object_at(get("/v1/runs/demo/compare").body, "parity"); };
  EXPECT_EQ(json::string_at(grade(), "verdict"), "not_compared");
  train(current("demo"), 1, 10);
  train(current("alone"), 1, 10);
  EXPECT_EQ(json::string_at(grade(), "grade"), "bitwise");
  EXPECT_EQ(json::int_at(grade(), "compared_steps"), 10);
  train(current("demo"), 11, 12, 4e-6);
  train(current("alone"), 11, 12);
  EXPECT_EQ(json::string_at(grade(), "grade"), "tolerance");
  EXPECT_NEAR(json::number_at(grade(), "max_abs_loss_difference"), 4e-6, 1e-12);
  train(current("demo"), 13, 14, 1.0);
  train(current("alone"), 13, 14);
  EXPECT_EQ(json::string_at(grade(), "grade"), "statistical");
  EXPECT_EQ(json::string_at(grade(), "verdict"), "fail");
  const json::object compared = get("/v1/runs/demo/compare").body;
  EXPECT_EQ(json::array_at(compared, "reference_curve").size(), 14u);
  EXPECT_EQ(json::string_at(json::object_at(compared, "reference"), "name"), "alone");
}

TEST_F(AgentApiTest, AFailpointInAWriteUndoesItWholly) {
  ASSERT_TRUE(failpoint::arm("server.run.saved=error@1").has_value());
  EXPECT_EQ(start_run("demo").status, 500);
  EXPECT_EQ(get("/v1/runs/demo").status, 404);
  EXPECT_TRUE(json::array_at(desired(), "instances").empty());
  ASSERT_TRUE(failpoint::arm("server.leg.opened=error@1,server.tick=error@2").has_value());
  EXPECT_EQ(start_run("demo").status, 500);
  EXPECT_EQ(start_run("demo").status, 201);
  EXPECT_TRUE(until_state("demo", "running")) << "a failed tick is made up by the next";
  ASSERT_TRUE(failpoint::arm("").has_value());
}

}  // namespace
}  // namespace anychip::server
