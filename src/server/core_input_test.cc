// Bad input, each with a code of its own and nothing changed; tenants that cannot see each other;
// idempotency.
#include "server/core_test.h"

#include "base/hash.h"

namespace anychip::server {
namespace {

class InputTest : public CoreTest {
 protected:
  std::string upload(const std::string& bytes) {
    const Answer made = call("POST", "/v1/workdirs", {{"@raw", bytes}}, token_);
    EXPECT_EQ(made.status, 201) << made.text;
    return json::string_at(made.body, "digest");
  }
};

TEST_F(InputTest, UnknownChipOffersTheNearestNames) {
  const Answer refused = start_run("demo", "sim-x");
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(refused.code(), "chip_unknown");
  EXPECT_NE(json::string_at(refused.body, "hint").find("sim-a"), std::string::npos);
}

TEST_F(InputTest, EveryReasonAtOnce) {
  const Answer refused = post("/v1/runs", {{"name", "-bad"},
                                           {"image", "torhc"},
                                           {"chip", "sim-x"},
                                           {"count", 0},
                                           {"restarts_max", -1},
                                           {"command", json::array{}},
                                           {"reference_of", "nobody"}});
  EXPECT_EQ(refused.codes(),
            (std::set<std::string>{"name_invalid", "image_unknown", "chip_unknown", "count_invalid",
                                   "field_invalid", "command_empty", "run_unknown"}));
}

TEST_F(InputTest, CountsVariantsAndCapacity) {
  EXPECT_EQ(start_run("a", "cpu", {{"count", 0}}).code(), "count_invalid");
  EXPECT_EQ(start_run("a", "cpu", {{"count", 3}}).code(), "count_exceeds_total");
  EXPECT_EQ(start_run("a", "lonely").code(), "variant_missing");
  ASSERT_EQ(start_run("a", "cpu", {{"count", 2}}).status, 201);
  const Answer busy = start_run("b");
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(busy.code(), "no_capacity");
  EXPECT_EQ(get("/v1/runs/b").code(), "run_unknown");
}

TEST_F(InputTest, NamesTypesAndMalformedBodies) {
  ASSERT_EQ(start_run("demo").status, 201);
  EXPECT_EQ(start_run("demo").code(), "name_taken");
  EXPECT_EQ(call("POST", "/v1/runs", {{"@raw", "{\"name\": "}}, token_).code(), "json_malformed");
  EXPECT_EQ(call("POST", "/v1/runs", {{"@raw", "[1]"}}, token_).code(), "body_not_object");
  EXPECT_EQ(start_run("x", "cpu", {{"command", "python"}}).code(), "field_invalid");
  EXPECT_EQ(start_run("x", "cpu", {{"environment", json::object{{"A", 1}}}}).code(),
            "field_invalid");
  EXPECT_EQ(start_run("x", "cpu", {{"count", "two"}}).code(), "field_invalid");
  EXPECT_EQ(start_run("x", "cpu", {{"command", json::array{std::string("a\0b", 3)}}}).code(),
            "field_invalid");
  EXPECT_EQ(post("/v1/runs", {{"name", "x"}, {"template", "peom"}}).code(), "template_unknown");
  EXPECT_EQ(get("/v1/runs?limit=0").code(), "query_invalid");
  EXPECT_EQ(get("/v1/runs?limit=-1").code(), "query_invalid");
  EXPECT_EQ(get("/v1/runs?state=nice").code(), "query_invalid");
  EXPECT_EQ(get("/v1/nothing").code(), "route_not_found");
  const Answer wrong_method = call("DELETE", "/v1/offers", {}, token_);
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.code(), "method_not_allowed");
}

TEST_F(InputTest, WorkdirsAreKeptOnceCheckedAndOwned) {
  const std::string digest = upload("train.py,data/a.txt");
  EXPECT_EQ(digest, sha256_hex("train.py,data/a.txt"));
  EXPECT_EQ(upload("train.py,data/a.txt"), digest);
  EXPECT_EQ(call("POST", "/v1/workdirs", {{"@raw", "garbage"}}, token_).code(),
            "archive_malformed");
  EXPECT_EQ(call("POST", "/v1/workdirs", {{"@raw", "abc"}}, token_, {{"X-Content-Sha256", digest}})
                .code(),
            "digest_mismatch");
  const json::object workdir{{"digest", digest}};
  EXPECT_EQ(start_run("a", "cpu", {{"workdir", workdir}}).status, 201);
  const Answer missing =
      start_run("b", "cpu", {{"workdir", workdir}, {"command", json::array{"python", "trian.py"}}});
  EXPECT_EQ(missing.code(), "script_missing");
  EXPECT_EQ(
      start_run("c", "cpu", {{"workdir", json::object{{"digest", std::string(64, 'a')}}}}).code(),
      "workdir_unknown");
  // Another project does not get a run from a digest it only knows by name.
  token_ = new_account("other");
  EXPECT_EQ(start_run("d", "cpu", {{"workdir", workdir}}).code(), "workdir_unknown");
  // Its node may fetch what is placed on it.
  EXPECT_EQ(call("GET", "/agent/v1/workdirs/" + digest, {}, node_key_).text, "train.py,data/a.txt");
  EXPECT_EQ(call("GET", "/agent/v1/workdirs/" + std::string(64, 'b'), {}, node_key_).status, 404);
  EXPECT_EQ(post("/v1/runs", {{"name", "t"}, {"template", "poem"}}).code(),
            "template_data_missing");
}

TEST_F(InputTest, SwitchRefusals) {
  ASSERT_EQ(start_run("demo").status, 201);
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).code(), "run_not_running");
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_EQ(post("/v1/runs/demo/switch", {}).code(), "field_invalid");
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-x"}}).code(), "chip_unknown");
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "cpu"}}).code(), "switch_to_same");
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "lonely"}}).code(), "variant_missing");
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-b"}, {"count", 2}}).code(),
            "count_exceeds_total");
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}, {"verify_steps", 0}}).code(),
            "verify_steps_invalid");
  EXPECT_EQ(post("/v1/runs/nobody/switch", {{"chip", "sim-a"}}).code(), "run_unknown");
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}, {"at_step", 9}}).status, 202);
  const Answer twice = post("/v1/runs/demo/switch", {{"chip", "sim-b"}});
  EXPECT_EQ(twice.status, 409);
  EXPECT_EQ(twice.code(), "switch_active");
  train(current("demo"), 1, 3);
  exit(current("demo"), 0);
  ASSERT_TRUE(until_state("demo", "finished"));
  const Answer ended = post("/v1/runs/demo/switch", {{"chip", "sim-a"}});
  EXPECT_EQ(ended.status, 409);
  EXPECT_EQ(ended.code(), "run_ended");
  EXPECT_EQ(post("/v1/runs/demo/stop").code(), "run_ended");
}

TEST_F(InputTest, TokensOfEachKindOpenOnlyTheirOwnDoors) {
  EXPECT_EQ(call("GET", "/v1/runs").code(), "token_missing");
  EXPECT_EQ(call("GET", "/v1/runs", {}, "wrong").code(), "token_invalid");
  EXPECT_EQ(call("GET", "/v1/runs", {}, node_key_).status, 401);
  EXPECT_EQ(call("GET", "/v1/runs", {}, "admin").status, 401);
  EXPECT_EQ(call("GET", "/v1/nodes", {}, "admin").status, 200) << "who runs it sees its machines";
  EXPECT_EQ(call("POST", "/v1/accounts", {{"name", "x"}}, token_).status, 401);
  EXPECT_EQ(call("GET", "/agent/v1/desired?wait_s=0", {}, token_).status, 401);
  EXPECT_EQ(call("POST", "/agent/v1/enrol", {{"join_token", "no"}, {"name", "n"}, {"protocol", 1}})
                .code(),
            "join_token_invalid");
  EXPECT_EQ(
      call("POST", "/agent/v1/enrol", {{"join_token", "join"}, {"name", "n"}, {"protocol", 9}})
          .code(),
      "protocol_unknown");
  for (const char* open :
       {"/healthz", "/readyz", "/v1/chips", "/v1/offers", "/v1/templates", "/v1/images"}) {
    EXPECT_EQ(call("GET", open).status, 200) << open;
  }
  // Nothing secret is stored as it is.
  bool is_found = false;
  store_->read([&](store::Db& db) {
    const auto rows = db.query("SELECT token_hash FROM tokens UNION SELECT key_hash FROM nodes");
    for (const store::Row& row : *rows) {
      is_found |= row.text(0) == token_ || row.text(0) == node_key_;
    }
  });
  EXPECT_FALSE(is_found);
}

TEST_F(InputTest, ForeignThingsAnswerFourOhFour) {
  ASSERT_EQ(start_run("demo").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  const std::string id = json::string_at(run("demo"), "id");
  const std::string instance = json::string_at(leg("demo", 0), "instance_id");
  const std::string mine = token_;
  token_ = new_account("other");
  for (const std::string& name : {std::string("demo"), id}) {
    for (const char* tail : {"", "/logs", "/metrics", "/events", "/compare", "/switches"}) {
      EXPECT_EQ(get("/v1/runs/" + name + tail).status, 404) << tail;
    }
    EXPECT_EQ(post("/v1/runs/" + name + "/stop").status, 404);
    EXPECT_EQ(post("/v1/runs/" + name + "/switch", {{"chip", "sim-a"}}).status, 404);
    EXPECT_EQ(call("DELETE", "/v1/runs/" + name, {}, token_).status, 404);
  }
  EXPECT_EQ(get("/v1/instances/" + instance).status, 404);
  for (const char* list : {"/v1/runs", "/v1/instances", "/v1/volumes", "/v1/snapshots"}) {
    EXPECT_TRUE(json::array_at(get(list).body, "items").empty()) << list;
  }
  EXPECT_EQ(start_run("demo").status, 201) << "names are one's own";
  token_ = mine;
  EXPECT_EQ(get("/v1/instances/" + instance).status, 200);
  EXPECT_EQ(json::array_at(get("/v1/volumes").body, "items").size(), 2u);
}

TEST_F(InputTest, IdempotencyKeys) {
  const json::object body{
      {"name", "demo"}, {"image", "torch"}, {"chip", "cpu"}, {"command", json::array{"true"}}};
  const net::Headers key{{"Idempotency-Key", "k1"}};
  const Answer first = call("POST", "/v1/runs", body, token_, key);
  ASSERT_EQ(first.status, 201);
  const Answer again = call("POST", "/v1/runs", body, token_, key);
  EXPECT_EQ(again.status, 201);
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(json::array_at(get("/v1/runs").body, "items").size(), 1u);
  json::object other = body;
  other["name"] = "demo2";
  const Answer reused = call("POST", "/v1/runs", other, token_, key);
  EXPECT_EQ(reused.status, 422);
  EXPECT_EQ(reused.code(), "idempotency_key_reused");
  // A refusal is not remembered: the same key may succeed later.
  const net::Headers second{{"Idempotency-Key", "k2"}};
  other["chip"] = "sim-x";
  EXPECT_EQ(call("POST", "/v1/runs", other, token_, second).code(), "chip_unknown");
  other["chip"] = "cpu";
  EXPECT_EQ(call("POST", "/v1/runs", other, token_, second).status, 201);
}

TEST_F(InputTest, ListsComeInPages) {
  for (const char* name : {"a", "b", "c"}) {
    clock_.move(milliseconds(5));
    ASSERT_EQ(start_run(name, name[0] == 'c' ? "sim-a" : "cpu").status, 201);
  }
  const json::object first = get("/v1/runs?limit=2").body;
  ASSERT_EQ(json::array_at(first, "items").size(), 2u);
  EXPECT_EQ(json::string_at(json::array_at(first, "items").at(0).as_object(), "name"), "c");
  const json::object second =
      get("/v1/runs?limit=2&cursor=" + json::string_at(first, "next_cursor")).body;
  ASSERT_EQ(json::array_at(second, "items").size(), 1u);
  EXPECT_TRUE(second.at("next_cursor").is_null());
  EXPECT_EQ(json::array_at(get("/v1/runs?state=queued").body, "items").size(), 3u);
}

}  // namespace
}  // namespace anychip::server
