// Every command against a fake server: what it asks, what it prints, how it exits.
#include <atomic>

#include <gmock/gmock.h>

#include "cli/cli_fixture.h"

namespace anychip::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const char* const kRun =
    R"({"id":"run_1","name":"demo","state":"running","state_reason":"","chip":"cpu","count":1,
  "back_end":"cpu","image":"pytorch","variant":"cpu","command":["python","train.py"],"step":120,"loss":3.25,
  "created_at":"2026-11-30T20:00:00Z","started_at":"2026-11-30T20:00:01Z","ended_at":null,
  "price_micros_per_hour":120000,"cost_micros":1234,"currency":"CNY","simulated":false,"switch":null,
  "legs":[{"index":0,"chip":"cpu","count":1,"state":"running","device":"cpu","first_step":1,"last_step":120,
  "steps":120,"steps_per_second":9.5,"metered_us":12000000,"cost_micros":1234,"voided":false,
  "end_reason":""}]})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

class Commands : public CliTest {};

TEST_F(Commands, EveryRequestCarriesTheTokenAndItIsNeverPrinted) {
  route("GET /v1/account",
        R"({"id":"acc_1","name":"me","balance_micros":10000000,"currency":"CNY"})");
  const Outcome shown = call({"account"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("¥10.00"));
  EXPECT_EQ(net::header(requests("GET /v1/account").at(0).headers, "Authorization"),
            "Bearer secret-token");
  EXPECT_THAT(shown.out + shown.err, Not(HasSubstr("secret-token")));
}

TEST_F(Commands, JsonIsTheServersOwnDocument) {
  route("GET /v1/runs/demo", kRun);
  const Outcome shown = call({"show", "demo", "-o", "json"});
  EXPECT_EQ(shown.status, 0);
  EXPECT_EQ(json::parse(shown.out).value(), json::parse(kRun).value());
  EXPECT_THAT(shown.err, IsEmpty());
}

TEST_F(Commands, EveryProblemHasItsExitStatusAndOneJsonObject) {
  const std::pair<Code, int> kCases[] = {
      {Code::kInvalidArgument, 3}, {Code::kUnauthenticated, 4},   {Code::kPermissionDenied, 4},
      {Code::kNotFound, 5},        {Code::kAlreadyExists, 6},     {Code::kFailedPrecondition, 6},
      {Code::kPaymentRequired, 7}, {Code::kResourceExhausted, 8}, {Code::kDeadlineExceeded, 9},
      {Code::kInternal, 1}};
  for (const auto& [code, status] : kCases) {
    refuse("GET /v1/runs/demo", code, "some_reason");
    const Outcome plain = call({"show", "demo"});
    EXPECT_EQ(plain.status, status) << name_of(code);
    EXPECT_THAT(plain.err, HasSubstr("refused: some_reason"));
    EXPECT_THAT(plain.out, IsEmpty());
    const Outcome as_json = call({"show", "demo", "-o", "json"});
    EXPECT_EQ(as_json.status, status);
    EXPECT_EQ(json::string_at(json::parse(as_json.err).value().as_object(), "code"), "some_reason");
  }
}

TEST_F(Commands, AServerThatIsAwayIsOneSentenceWithTheWayOut) {
  server_.reset();
  const Outcome away = call({"ps"});
  EXPECT_EQ(away.status, 1);
  EXPECT_THAT(away.err, HasSubstr("anychip up"));
  (void)sys::remove_file(folder_ + "/client.json");
  const Outcome never = call({"ps", "-o", "json"});
  EXPECT_EQ(never.status, 1);
  EXPECT_THAT(never.err, HasSubstr("server_unknown"));
}

TEST_F(Commands, AWrongTokenIsExitStatus4AndNamesTheFile) {
  refuse("GET /v1/runs", Code::kUnauthenticated, "token_invalid");
  const Outcome wrong = call({"ps"});
  EXPECT_EQ(wrong.status, 4);
  EXPECT_THAT(wrong.err, HasSubstr("client.json"));
}

TEST_F(Commands, ListsFollowEveryPage) {
  route("GET /v1/runs", [](const net::Request& request) {
    if (request.query("cursor"))
      return json_response(R"({"items":[{"name":"second"}],"next_cursor":null})");
    return json_response(R"({"items":[{"name":"first"}],"next_cursor":"a b"})");
  });
  const Outcome all = call({"ps", "-o", "json"});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(json::array_at(json::parse(all.out).value().as_object(), "items").size(), 2u);
  EXPECT_EQ(*requests("GET /v1/runs").at(1).query("cursor"), "a b");
}

TEST_F(Commands, PsShowsStateStepLossAndCost) {
  route("GET /v1/runs", std::string(R"({"items":[)") + kRun + R"(],"next_cursor":null})");
  const Outcome shown = call({"ps", "--state", "running"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  for (const char* word : {"demo", "running", "cpu", "120", "3.2500", "¥0.001234", "¥0.12/h"}) {
    EXPECT_THAT(shown.out, HasSubstr(word));
  }
  EXPECT_EQ(*requests("GET /v1/runs").at(0).query("state"), "running");
}

TEST_F(Commands, NamesFromTheServerCannotDriveTheTerminal) {
  route("GET /v1/runs",
        R"({"items":[{"name":"\u001b]0;owned\u0007","state":"running"}],"next_cursor":null})");
  EXPECT_EQ(call({"ps"}).out.find('\x1b'), std::string::npos);
  refuse("GET /v1/runs/x", Code::kNotFound, "r");
  route("GET /v1/runs/x", [](const net::Request&) {
    return net::problem_response(Error{Code::kNotFound, "run_unknown", "no \x1b[2J run", "", {}});
  });
  EXPECT_EQ(call({"show", "x"}).err.find('\x1b'), std::string::npos);
}

TEST_F(Commands, RunNamesAreEncodedInPaths) {
  route("GET /v1/runs/a%2Fb%3Fc", kRun);
  EXPECT_EQ(call({"show", "a/b?c", "-o", "json"}).status, 0);
}

TEST_F(Commands, OfferShowsPricesAndSuggestsTheNearestChip) {
  route("GET /v1/offers",
        R"({"items":[{"chip":"tpu-sim","name":"TPU v5e, simulated","back_end":"tpu","node":"n1",
      "count_total":2,"count_free":1,"price_micros_per_hour":8640000,"simulated":true,
      "price_note":"list price of the chip simulated"}],"next_cursor":null})");
  EXPECT_THAT(call({"offer"}).out, HasSubstr("¥8.64/h"));
  const Outcome typo = call({"offer", "tpu-smi"});
  EXPECT_EQ(typo.status, 5);
  EXPECT_THAT(typo.err, HasSubstr("did you mean tpu-sim"));
}

TEST_F(Commands, CatalogueListsAreTables) {
  route("GET /v1/chips", R"({"items":[{"id":"cpu","name":"CPU","vendor":"any","back_end":"cpu",
      "price_micros_per_hour":0}],"next_cursor":null})");
  route("GET /v1/images",
        R"({"items":[{"id":"pytorch","variants":[{"id":"cpu","back_end":"cpu","kind":"layers",
      "chips":["cpu"]}]}],"next_cursor":null})");
  route("GET /v1/templates",
        R"({"items":[{"id":"tang-poem-gpt","name":"Tang-poem GPT","image":"pytorch","chip":"cpu",
      "command":["python","train.py"],"expected_cost":"under ¥2"}],"next_cursor":null})");
  route(
      "GET /v1/nodes",
      R"({"items":[{"id":"nod_1","name":"n1","state":"ready","last_seen_at":"2026-11-30T20:00:00Z",
      "devices":[{"id":"cpu-0","chip":"cpu","state":"free"}],"images":[{"image":"pytorch","variant":"cpu",
      "state":"preparing","progress_percent":40,"progress_text":"torch: installing"},{"image":"pytorch",
      "variant":"tpu-sim","state":"preparing","progress_percent":0,"progress_text":""}],
      "pool_free_bytes":1073741824}],"next_cursor":null})");
  EXPECT_THAT(call({"chip"}).out, HasSubstr("CPU"));
  EXPECT_THAT(call({"image"}).out, HasSubstr("layers"));
  EXPECT_THAT(call({"template", "list"}).out, HasSubstr("tang-poem-gpt"));
  const std::string nodes = call({"node"}).out;
  EXPECT_THAT(nodes, HasSubstr("pytorch/cpu preparing 40 %"));
  EXPECT_THAT(nodes, Not(HasSubstr("pytorch/tpu-sim"))) << "nobody has asked for it";
  EXPECT_THAT(nodes, HasSubstr("cpu 1/1"));
  EXPECT_THAT(nodes, HasSubstr("1 GiB"));
}

TEST_F(Commands, DiskAndInstanceLists) {
  route("GET /v1/volumes",
        R"({"items":[{"id":"vol_1","kind":"checkpoint","run_id":"run_1","attach_generation":3,
      "attached_to":null,"size_bytes":1073741824}],"next_cursor":null})");
  route("GET /v1/snapshots",
        R"({"items":[{"id":"snp_1","freeze_us":41000,"state":"ready"}],"next_cursor":null})");
  route("GET /v1/instances", R"({"items":[{"id":"ins_1","state":"gone"}],"next_cursor":null})");
  route("GET /v1/instances/ins_1", R"({"id":"ins_1","device_ids":["cpu-0"]})");
  EXPECT_THAT(call({"volume"}).out, HasSubstr("checkpoint"));
  EXPECT_THAT(call({"snapshot", "list"}).out, HasSubstr("41 ms"));
  EXPECT_THAT(call({"instance", "list"}).out, HasSubstr("ins_1"));
  EXPECT_THAT(call({"instance", "show", "ins_1", "-o", "json"}).out, HasSubstr("cpu-0"));
  EXPECT_EQ(call({"instance", "show"}).status, 3);
}

TEST_F(Commands, ShowListsTheLegs) {
  route("GET /v1/runs/demo", kRun);
  const std::string shown = call({"show", "demo"}).out;
  EXPECT_THAT(shown, HasSubstr("1–120"));
  EXPECT_THAT(shown, HasSubstr("python train.py"));
}

TEST_F(Commands, LogsJoinThePiecesByOffset) {
  route("GET /v1/runs/demo", kRun);
  route("GET /v1/runs/demo/logs", [](const net::Request& request) {
    const std::string after = request.query("after").value_or("");
    if (after == "0")
      return json_response(
          R"({"offset":0,"next_offset":5,"text":"step ","leg_index":0,"ended":true})");
    if (after == "5")
      return json_response(
          R"({"offset":5,"next_offset":8,"text":"10\n","leg_index":0,"ended":true})");
    return json_response(R"({"offset":8,"next_offset":8,"text":"","leg_index":0,"ended":true})");
  });
  EXPECT_EQ(call({"logs", "demo"}).out, "step 10\n");
  EXPECT_EQ(call({"logs", "-f", "demo"}).out, "step 10\n");
  const Outcome as_json = call({"logs", "demo", "-o", "json"});
  EXPECT_EQ(json::string_at(json::parse(as_json.out).value().as_object(), "text"), "step 10\n");
  call({"logs", "demo", "--leg", "1"});
  EXPECT_EQ(*requests("GET /v1/runs/demo/logs").back().query("leg"), "1");
}

TEST_F(Commands, FollowingTheLogRidesOverAServerThatIsAwayForAMoment) {
  std::atomic<int> calls = 0;
  route("GET /v1/runs/demo/logs", [&calls](const net::Request&) {
    if (++calls == 1)
      return net::problem_response(Error{Code::kDeadlineExceeded, "slow", "slow", "", {}});
    if (calls == 2)
      return json_response(R"({"offset":0,"next_offset":3,"text":"ok\n","ended":false})");
    return json_response(R"({"offset":3,"next_offset":3,"text":"","ended":true})");
  });
  const Outcome followed = call({"logs", "-f", "demo"});
  EXPECT_EQ(followed.status, 0) << followed.err;
  EXPECT_EQ(followed.out, "ok\n");
}

TEST_F(Commands, MetricsAndEvents) {
  route("GET /v1/runs/demo/metrics",
        R"({"items":[{"step":7,"leg_index":0,"loss":3.5,"step_s":0.1,"tokens_s":20480,
      "memory_bytes":1048576}],"next_cursor":null})");
  route("GET /v1/runs/demo/events", [](const net::Request& request) {
    if (request.query("after").value_or("") == "0") {
      return json_response(
          R"({"items":[{"seq":1,"at":"2026-11-30T20:00:00Z","kind":"run.started","message":"started"}]})");
    }
    return json_response(R"({"items":[]})");
  });
  EXPECT_THAT(call({"metrics", "demo", "--after-step", "6"}).out, HasSubstr("3.500000"));
  EXPECT_EQ(*requests("GET /v1/runs/demo/metrics").at(0).query("after_step"), "6");
  EXPECT_THAT(call({"events", "demo"}).out, HasSubstr("run.started"));
  const Outcome as_json = call({"events", "demo", "-o", "json"});
  EXPECT_EQ(json::array_at(json::parse(as_json.out).value().as_object(), "items").size(), 1u);
}

TEST_F(Commands, StopWaitsUntilTheRunHasEnded) {
  std::atomic<int> asked = 0;
  route("POST /v1/runs/demo/stop", with(kRun, "running", "stopping"));
  route("GET /v1/runs/demo", [&asked](const net::Request&) {
    return json_response(with(kRun, "running", ++asked < 2 ? "stopping" : "stopped"));
  });
  const Outcome stopped = call({"stop", "demo", "--wait"});
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("stopped"));
  EXPECT_EQ(asked, 2);
}

TEST_F(Commands, WaitingForAnImageShowsHowFarItIs) {
  route("GET /v1/runs/demo", with(kRun, "running", "preparing"));
  route("GET /v1/nodes",
        R"({"items":[{"images":[{"image":"pytorch","variant":"tpu-sim","state":"preparing",
      "progress_percent":10,"progress_text":"other"},{"image":"pytorch","variant":"cpu","state":"preparing",
      "progress_percent":40,"progress_text":"torch: installing"}]}],"next_cursor":null})");
  const Outcome late = call({"wait", "demo", "--timeout", "1"});
  EXPECT_EQ(late.status, 9);
  EXPECT_THAT(late.err, HasSubstr("pytorch/cpu 40 %: torch: installing"));
}

TEST_F(Commands, WaitReachesAStepOrAStateOrTheEnd) {
  route("GET /v1/runs/demo", kRun);
  EXPECT_EQ(call({"wait", "demo", "--step", "100"}).status, 0);
  EXPECT_EQ(call({"wait", "demo", "--state", "running"}).status, 0);
  const Outcome late = call({"wait", "demo", "--step", "500", "--timeout", "1"});
  EXPECT_EQ(late.status, 9);
  EXPECT_THAT(late.err, HasSubstr("step 120"));
  route("GET /v1/runs/demo", with(kRun, "running", "failed"));
  EXPECT_EQ(call({"wait", "demo"}).status, 1);
  EXPECT_EQ(call({"wait", "demo", "--state", "failed"}).status, 0) << "that was waited for";
  EXPECT_EQ(call({"wait", "demo", "--state", "finished"}).status, 1);
  route("GET /v1/runs/demo", with(kRun, "running", "finished"));
  EXPECT_EQ(call({"wait", "demo"}).status, 0);
  EXPECT_EQ(call({"wait", "demo", "--step", "500"}).status, 1) << "it ended before";
  EXPECT_EQ(call({"wait", "demo", "--timeout", "soon"}).status, 3);
}

const char* const kSwitch =
    R"({"id":"swi_1","run_id":"run_1","from":{"chip":"cpu","count":1},"to":{"chip":"tpu-sim",
  "count":2},"state":"active","step":3,"step_name":"prepare","reason":"","at_step":200,"stopped_at_step":200,
  "lost_steps":0,"down_time_ms":6400,"timeline":[]})";

TEST_F(Commands, SwitchSendsWhatWasAskedAndShowsTheSteps) {
  std::atomic<int> asked = 0;
  route("POST /v1/runs/demo/switch", kSwitch, 202);
  route("GET /v1/runs/demo", kRun);
  route("GET /v1/runs/demo/switches", [&asked](const net::Request&) {
    const std::string now =
        ++asked < 2 ? with(kSwitch, "prepare", "inherit") : with(kSwitch, "active", "done");
    return json_response("{\"items\":[" + now + "],\"next_cursor\":null}");
  });
  const Outcome moved = call({"switch", "demo", "--to", "tpu-sim:2", "--at-step", "200", "--wait"});
  EXPECT_EQ(moved.status, 0) << moved.err;
  EXPECT_THAT(moved.err, HasSubstr("3/8 prepare (step 120 of 200)"));
  EXPECT_THAT(moved.err, HasSubstr("inherit"));
  EXPECT_THAT(moved.out,
              HasSubstr("cpu → tpu-sim:2  done after step 200; down time 6.4 s; no step lost"));
  const json::object body = body_of("POST /v1/runs/demo/switch");
  EXPECT_EQ(json::serialize(body), R"({"chip":"tpu-sim","count":2,"at_step":200})");
}

TEST_F(Commands, ASwitchThatFellBackIsAFailureThatSaysWhy) {
  route("POST /v1/runs/demo/switch",
        with(kSwitch, "\"active\",\"step\":3", "\"fell_back\",\"step\":7"), 202);
  route("GET /v1/runs/demo", kRun);
  route("GET /v1/runs/demo/switches", R"({"items":[],"next_cursor":null})");
  const Outcome moved = call({"switch", "demo", "--to", "tpu-sim", "--wait", "-o", "json"});
  EXPECT_EQ(moved.status, 1);
  EXPECT_THAT(moved.err, HasSubstr("switch_fell_back"));
  EXPECT_EQ(call({"switch", "demo"}).status, 3) << "no chip named";
}

TEST_F(Commands, SwitchCancelTakesTheActiveOne) {
  route("GET /v1/runs/demo/switches",
        std::string("{\"items\":[") + kSwitch + "],\"next_cursor\":null}");
  route("POST /v1/runs/demo/switches/swi_1/cancel", kSwitch);
  EXPECT_EQ(call({"switch", "demo", "--cancel"}).status, 0);
  EXPECT_EQ(requests("POST /v1/runs/demo/switches/swi_1/cancel").size(), 1u);
  EXPECT_THAT(call({"switch", "demo", "--list"}).out, HasSubstr("3/8 prepare"));
  route("GET /v1/runs/demo/switches", R"({"items":[],"next_cursor":null})");
  EXPECT_EQ(call({"switch", "demo", "--cancel"}).status, 6);
}

TEST_F(Commands, DownOfARunStopsAndDeletesIt) {
  std::atomic<bool> is_stopped = false;
  route("GET /v1/runs/demo", [&](const net::Request&) {
    return json_response(is_stopped ? with(kRun, "running", "stopped") : kRun);
  });
  route("POST /v1/runs/demo/stop", [&](const net::Request&) {
    is_stopped = true;
    return json_response(kRun);
  });
  route("DELETE /v1/runs/demo", [](const net::Request&) { return net::Response{204, {}, ""}; });
  const Outcome removed = call({"down", "demo", "--yes"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_EQ(requests("DELETE /v1/runs/demo").size(), 1u);
}

TEST_F(Commands, DownWithoutProcessesSaysSoAndFailsNothing) {
  const Outcome down = call({"down"});
  EXPECT_EQ(down.status, 0) << down.err;
  EXPECT_EQ(down.out, "was not up\n");
  EXPECT_EQ(call({"down", "--all", "-o", "json"}).status, 0);
}

TEST_F(Commands, CompareWritesTheReportAndChecksTheVerdict) {
  const std::string fixture =
      sys::read_file(std::string(ANYCHIP_SOURCE_DIR) + "/tests/data/compare.json").value();
  route("GET /v1/runs/demo/compare", fixture);
  const std::string path = folder_ + "/report.html";
  const Outcome compared = call({"compare", "demo", "--html", path, "--against", "other run"});
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("steps/s"));
  EXPECT_THAT(compared.err, HasSubstr(path));
  EXPECT_THAT(sys::read_file(path).value(), HasSubstr("<!doctype html>"));
  EXPECT_EQ(*requests("GET /v1/runs/demo/compare").at(0).query("against"), "other run");
  EXPECT_EQ(json::parse(call({"compare", "demo", "-o", "json"}).out).value(),
            json::parse(fixture).value());
  EXPECT_THAT(call({"compare", "demo", "-o", "html"}).out, HasSubstr("</html>"));
  EXPECT_EQ(call({"compare", "demo", "--check"}).status, 0);
  route("GET /v1/runs/demo/compare",
        with(fixture, "\"verdict\": \"pass\"", "\"verdict\": \"fail\""));
  EXPECT_EQ(call({"compare", "demo", "--check"}).status, 1);
  EXPECT_EQ(call({"compare", "demo", "--html", "/nowhere/x.html"}).status, 5);
  EXPECT_EQ(call({"ps", "-o", "html"}).status, 3);
}

TEST_F(Commands, AccountNewUsesTheAdminTokenAndKeepsTheOldOne) {
  EXPECT_EQ(call({"account", "new", "alice"}).status, 4) << "no admin token here";
  ASSERT_TRUE(sys::make_folders(folder_ + "/server"));
  ASSERT_TRUE(sys::write_file_atomic(folder_ + "/server/admin.token", "admin-secret\n", 0600));
  route("POST /v1/accounts",
        R"({"account":{"id":"acc_2","name":"alice","balance_micros":10000000,"currency":"CNY"},
      "project":{"id":"prj_2","name":"alice"},"token":"alice-token"})",
        201);
  const Outcome made = call({"account", "new", "alice"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out + made.err, Not(HasSubstr("alice-token")));
  EXPECT_EQ(net::header(requests("POST /v1/accounts").at(0).headers, "Authorization"),
            "Bearer admin-secret");
  EXPECT_EQ(load_client_file(folder_)->token, "alice-token");
  EXPECT_EQ(call({"account", "use", "me"}).status, 0);
  EXPECT_EQ(load_client_file(folder_)->token, "secret-token");
  EXPECT_EQ(call({"account", "use", "nobody"}).status, 5);
  EXPECT_EQ(call({"account", "new"}).status, 3);
}

TEST_F(Commands, CompletionOffersCommandsAndNames) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome script = call({"completion", shell});
    EXPECT_EQ(script.status, 0);
    EXPECT_THAT(script.out, HasSubstr("switch"));
    EXPECT_THAT(script.out, HasSubstr("at-step"));
  }
  EXPECT_EQ(call({"completion", "csh"}).status, 3);
  route("GET /v1/runs", R"({"items":[{"name":"demo"},{"name":"twin"}],"next_cursor":null})");
  EXPECT_EQ(call({"__names", "runs"}).out, "demo\ntwin\n");
}

}  // namespace
}  // namespace anychip::cli
