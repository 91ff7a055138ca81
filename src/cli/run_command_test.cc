// `run` and the command line itself: bodies, workdirs, task files, usage errors.
#include <gmock/gmock.h>

#include "base/hash.h"
#include "base/rng.h"
#include "cli/cli_fixture.h"

namespace anychip::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class RunCommand : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    route("GET /v1/images", R"({"items":[{"id":"pytorch"}],"next_cursor":null})");
    route("POST /v1/workdirs", [](const net::Request& request) {
      const std::string digest = sha256_hex(request.body);
      EXPECT_EQ(net::header(request.headers, "X-Content-Sha256"), digest);
      return json_response("{\"digest\":\"" + digest +
                           "\",\"bytes\":" + std::to_string(request.body.size()) + "}");
    });
    route("POST /v1/runs", R"({"id":"run_1","name":"x","state":"queued","chip":"cpu","count":1,
        "price_micros_per_hour":120000})",
          201);
    work_ = folder_ + "/work";
    ASSERT_TRUE(sys::make_folders(work_));
    ASSERT_TRUE(sys::write_file_atomic(work_ + "/train.py", "print('hi')\n"));
  }
  std::string work_;
};

TEST_F(RunCommand, FromATemplateNothingIsPacked) {
  const Outcome started =
      call({"run", "--name", "x", "--template", "tang-poem-gpt", "--chip", "cpu", "--", "python",
            "train.py", "--backend", "cpu", "-o", "file"});
  EXPECT_EQ(started.status, 0) << started.err;
  EXPECT_THAT(started.out, HasSubstr("queued on cpu × 1, ¥0.12/h"));
  EXPECT_THAT(requests("POST /v1/workdirs"), IsEmpty());
  EXPECT_EQ(json::serialize(body_of("POST /v1/runs")),
            R"({"name":"x","template":"tang-poem-gpt","chip":"cpu",)"
            R"("command":["python","train.py","--backend","cpu","-o","file"]})");
  EXPECT_FALSE(net::header(requests("POST /v1/runs").at(0).headers, "Idempotency-Key").empty());
}

TEST_F(RunCommand, AFolderIsPackedByContent) {
  const auto start = [&] {
    return call(
        {"run", "--name", "x",      "--image", "pytorch", "--chip",   "tpu-sim:2", "--workdir",
         work_, "-e",     "A=1",    "--env",   "B=x=y",   "--memory", "4GiB",      "--stop-at-step",
         "9",   "--",     "python", "train.py"});
  };
  ASSERT_EQ(start().status, 0);
  const json::object body = body_of("POST /v1/runs");
  EXPECT_EQ(json::string_at(body, "chip"), "tpu-sim");
  EXPECT_EQ(json::int_at(body, "count"), 2);
  EXPECT_EQ(json::int_at(body, "memory_bytes"), int64_t{4} << 30);
  EXPECT_EQ(json::int_at(body, "stop_at_step"), 9);
  EXPECT_EQ(json::string_at(json::object_at(body, "environment"), "B"), "x=y");
  const std::string digest = json::string_at(json::object_at(body, "workdir"), "digest");
  EXPECT_EQ(digest.size(), 64u);
  ASSERT_EQ(start().status, 0);
  EXPECT_EQ(sha256_hex(requests("POST /v1/workdirs").at(1).body), digest)
      << "same content, same bytes";
}

TEST_F(RunCommand, AnUnknownImageIsRefusedBeforeAnythingIsPacked) {
  refuse("POST /v1/runs", Code::kNotFound, "image_unknown");
  const Outcome refused = call({"run", "--name", "x", "--image", "pytroch", "--", "true"});
  EXPECT_EQ(refused.status, 5);
  EXPECT_THAT(requests("POST /v1/workdirs"), IsEmpty());
}

TEST_F(RunCommand, CountZeroGoesToTheServerWhichHasTheRules) {
  refuse("POST /v1/runs", Code::kInvalidArgument, "count_invalid");
  EXPECT_EQ(call({"run", "--template", "t", "--count", "0"}).status, 3);
  EXPECT_EQ(json::int_at(body_of("POST /v1/runs"), "count"), 0);
}

TEST_F(RunCommand, EveryReasonOfARefusalIsShown) {
  route("POST /v1/runs", [](const net::Request&) {
    return net::problem_response(Error{Code::kInvalidArgument,
                                       "run_refused",
                                       "the run cannot start",
                                       "",
                                       {{"/chip", "no such chip"}, {"/count", "too many"}}});
  });
  const Outcome refused = call({"run", "--template", "t"});
  EXPECT_THAT(refused.err, HasSubstr("/chip: no such chip"));
  EXPECT_THAT(refused.err, HasSubstr("/count: too many"));
}

TEST_F(RunCommand, ATaskFileIsReadAndOptionsWin) {
  const std::string file = work_ + "/anychip.yaml";
  ASSERT_TRUE(sys::write_file_atomic(
      file,
      "name: from-file\nimage: pytorch\nchip: cpu\ncommand: python train.py\n"
      "environment: {A: file}\n"));
  const Outcome started = call({"run", "-f", file, "--name", "from-option", "-e", "A=option"});
  EXPECT_EQ(started.status, 0) << started.err;
  const json::object body = body_of("POST /v1/runs");
  EXPECT_EQ(json::string_at(body, "name"), "from-option");
  EXPECT_EQ(json::string_at(json::object_at(body, "environment"), "A"), "option");
  EXPECT_TRUE(body.contains("workdir")) << "the folder of the file";
}

TEST_F(RunCommand, BinaryGarbageAsATaskFileIsOneSentence) {
  SeededRandom random(7);
  std::string bytes(4096, '\0');
  random.fill({reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  const std::string file = folder_ + "/anychip.yaml";
  ASSERT_TRUE(sys::write_file_atomic(file, bytes));
  const Outcome refused = call({"run", "-f", file, "-o", "json"});
  EXPECT_EQ(refused.status, 3);
  EXPECT_EQ(json::string_at(json::parse(refused.err).value().as_object(), "code"),
            "task_malformed");
  EXPECT_THAT(requests("POST /v1/runs"), IsEmpty());
  EXPECT_EQ(call({"run", "-f", folder_ + "/absent.yaml"}).status, 5);
}

TEST_F(RunCommand, DryRunShowsThePriceAndStartsNothing) {
  route(
      "GET /v1/offers",
      R"({"items":[{"chip":"tpu-sim","count_free":1,"count_total":2,"price_micros_per_hour":8640000,
      "simulated":true}],"next_cursor":null})");
  route("GET /v1/account", R"({"balance_micros":10000000})");
  const Outcome shown = call({"run", "--chip", "tpu-sim:2", "--dry-run", "--", "true"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("¥17.28/h (list price of the chip simulated)"));
  EXPECT_THAT(requests("POST /v1/runs"), IsEmpty());
  EXPECT_THAT(requests("POST /v1/workdirs"), IsEmpty());
  const Outcome typo = call({"run", "--chip", "tpu-smi", "--dry-run", "--", "true"});
  EXPECT_EQ(typo.status, 5);
  EXPECT_THAT(typo.err, HasSubstr("tpu-sim"));
}

TEST_F(RunCommand, WaitingForAFailedRunIsAFailure) {
  route("GET /v1/runs/x",
        R"({"name":"x","state":"failed","state_reason":"exit status 1","step":null})");
  const Outcome failed = call({"run", "--template", "t", "--wait"});
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.err, HasSubstr("exit status 1"));
}

TEST_F(RunCommand, MistakesOnTheCommandLineAreExitStatus3) {
  const std::vector<std::vector<std::string>> kWrong = {
      {"run"},
      {"run", "--template", "t", "-e", "NOVALUE"},
      {"run", "--template", "t", "--memory", "much"},
      {"run", "--template", "t", "--chip", "h100:many"},
      {"run", "--template", "t", "--chip", "h100:2", "--count", "3"},
      {"run", "--template", "t", "--count", "two"},
      {"run", "--template", "t", "--unknown-option"},
      {"ps", "extra"},
      {"ps", "--", "true"},
      {"ps", "-o", "xml"},
      {"show"},
      {"wait"},
      {"swithc", "demo"},
      {"-o", "json"},
      {"up", "--port", "99999"},
  };
  for (const auto& words : kWrong) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 3) << testing::PrintToString(words) << outcome.err;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_FALSE(outcome.err.empty());
  }
  EXPECT_THAT(call({"swithc", "demo"}).err, HasSubstr("did you mean switch"));
  const Outcome as_json = call({"show", "-o", "json"});
  EXPECT_EQ(json::string_at(json::parse(as_json.err).value().as_object(), "code"), "usage");
}

TEST_F(RunCommand, TheOverviewSpeaksChineseWhenAsked) {
  EXPECT_THAT(call({"--lang", "zh", "--help"}).out, HasSubstr("切换"));
  setenv("LANG", "zh_CN.UTF-8", 1);
  EXPECT_THAT(call({"--help"}).out, HasSubstr("退出码"));
  EXPECT_THAT(call({"--lang", "en", "--help"}).out, HasSubstr("Exit status"));
  setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_THAT(call({"--help"}).out, HasSubstr("Exit status")) << "LC_ALL is stronger";
}

TEST_F(RunCommand, HelpHasAnExampleForEveryCommand) {
  const Outcome overview = call({"--help"});
  EXPECT_EQ(overview.status, 0);
  for (const char* name :
       {"up",       "down",   "doctor", "account",    "offer",   "chip",     "image",
        "template", "node",   "run",    "ps",         "show",    "logs",     "metrics",
        "events",   "wait",   "stop",   "switch",     "compare", "instance", "volume",
        "snapshot", "server", "agent",  "completion", "version"}) {
    const Outcome help = call({name, "--help"});
    EXPECT_EQ(help.status, 0) << name;
    EXPECT_THAT(help.out, HasSubstr(std::string("  anychip ") + name)) << name;
    EXPECT_THAT(help.out, HasSubstr("Examples:"));
    EXPECT_THAT(overview.out, HasSubstr(name));
  }
}

}  // namespace
}  // namespace anychip::cli
