// Proves the server against real sockets: keep-alive, limits, garbage, long polls that wake, time
// out and are dropped, streams, handlers that misbehave, and an end while everything is open.
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/rng.h"
#include "net/http.h"
#include "net/problem.h"
#include "net/test_socket.h"

namespace anychip::net {
namespace {

MonoTime now() { return RealClock{}.mono_now(); }

constexpr const char* kPing = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";

// A handler with one behaviour per path, and what the tests need to see of it.
struct Behaviour {
  std::atomic<int> calls{0};
  std::atomic<int> last_tries{0};
  std::atomic<int> version{0};
  std::mutex mutex;
  std::vector<Done> kept;

  void handle(Request request, bool is_last_try, Done done) {
    ++calls;
    if (is_last_try) ++last_tries;
    const std::string path(request.path());
    if (path == "/wait") {
      const int after = std::atoi(request.query("after").value_or("0").c_str());
      if (version.load() > after) return done(Response{200, {}, std::to_string(version.load())});
      return done(Waiting{milliseconds(std::atoi(request.query("ms").value_or("10000").c_str())),
                          Response{204, {}, {}}});
    }
    if (path == "/throw") throw std::runtime_error("thrown by a handler");
    if (path == "/drop") return;
    if (path == "/keep") {
      const std::lock_guard lock(mutex);
      kept.push_back(std::move(done));
      return;
    }
    if (path == "/thread") {
      std::thread([done = std::move(done)] { done(Response{200, {}, "from elsewhere"}); }).detach();
      return;
    }
    if (path == "/sse") return done(stream());
    if (path == "/big") return done(Response{200, {}, std::string(64 << 20, 'x')});
    if (path == "/framed") {
      return done(Response{200, {{"content-length", "99"}, {"Transfer-Encoding", "chunked"}}, "y"});
    }
    if (path == "/injected") return done(Response{200, {{"X-A", "b\r\nX-Evil: 1"}}, "x"});
    done(Response{200,
                  {{"Content-Type", "text/plain"}},
                  request.method + " " + std::to_string(request.body.size()) + " " + request.peer});
  }

  Streaming stream() {
    auto sent = std::make_shared<int>(0);
    return Streaming{{200, {{"Content-Type", "text/event-stream"}}, {}},
                     milliseconds(50),
                     [this, sent]() -> std::optional<std::string> {
                       if (*sent == 3) return std::nullopt;
                       if (*sent >= version.load()) return "";
                       return "data: " + std::to_string(++*sent) + "\n\n";
                     }};
  }
};

class ServerTest : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    auto started = Server::start(options, [this](Request request, bool is_last_try, Done done) {
      behaviour_.handle(std::move(request), is_last_try, std::move(done));
    });
    ASSERT_TRUE(started.has_value()) << started.error().to_string();
    server_ = std::move(*started);
  }
  void set_version(int version) {
    behaviour_.version.store(version);
    server_->wake();
  }
  void wait_for_calls(int calls) {
    for (int i = 0; i < 500 && behaviour_.calls < calls; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_GE(behaviour_.calls, calls);
  }
  static std::string reason_in(const std::string& answer) {
    const auto body = json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
    return body && body->is_object() ? json::string_at(body->as_object(), "code") : answer;
  }

  Behaviour behaviour_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, OneConnectionServesManyRequests) {
  start();
  TestSocket socket(server_->port());
  for (int i = 0; i < 3; ++i) {
    socket.send(kPing);
    const std::string answer = socket.read_until("GET 0 127.0.0.1");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_NE(answer.find("Content-Length: 15\r\n"), std::string::npos) << answer;
    EXPECT_EQ(answer.find("Connection: close"), std::string::npos);
  }
  socket.send("GET /ping HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(socket.is_closed_by_peer());
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrderAndGarbageEndsThem) {
  start();
  TestSocket socket(server_->port());
  socket.send(
      "POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
      "GET /b HTTP/1.1\r\n\r\n\x01\x02 garbage \xff\r\n\r\n");
  const std::string answer = socket.read_until("http_malformed");
  const size_t first = answer.find("POST 3 127.0.0.1");
  const size_t second = answer.find("GET 0 127.0.0.1");
  const size_t third = answer.find("HTTP/1.1 400 Bad Request");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos) << answer;
  EXPECT_TRUE(socket.is_closed_by_peer());
  EXPECT_EQ(behaviour_.calls, 2);
  TestSocket next(server_->port());
  next.send(kPing);
  EXPECT_NE(next.read_until("GET 0").find("200"), std::string::npos);
}

TEST_F(ServerTest, HeadHasNoBodyAndHttp10IsClosed) {
  start();
  TestSocket socket(server_->port());
  socket.send(std::string("HEAD /x HTTP/1.1\r\n\r\n") + kPing);
  const std::string answer = socket.read_until("GET 0 127.0.0.1");
  EXPECT_NE(answer.find("Content-Length: 16\r\n"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("HEAD 0"), std::string::npos) << answer;
  TestSocket old(server_->port());
  old.send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.read_until("GET 0").find("Connection: close"), std::string::npos);
  EXPECT_TRUE(old.is_closed_by_peer());
}

TEST_F(ServerTest, IdleConnectionsDoNotBlockAnother) {
  start();
  std::vector<std::unique_ptr<TestSocket>> idle;
  for (int i = 0; i < 9; ++i) {
    idle.push_back(std::make_unique<TestSocket>(server_->port()));
    if (i % 2 == 0) idle.back()->send("GET /half HTTP/1.1\r\nX-Unfinished: ");
    if (i % 3 == 0) idle.back()->send("a");
  }
  TestSocket socket(server_->port());
  socket.send(kPing);
  EXPECT_NE(socket.read_until("GET 0").find("200"), std::string::npos);
}

TEST_F(ServerTest, AnIdleConnectionIsClosedInTime) {
  ServerOptions options;
  options.idle_timeout = milliseconds(300);
  start(options);
  TestSocket idle(server_->port());
  TestSocket stalled(server_->port());
  stalled.send("POST /x HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(idle.is_closed_by_peer());
  EXPECT_TRUE(stalled.is_closed_by_peer());
  TestSocket waiting(server_->port());  // a wait is not idleness
  waiting.send("GET /wait?ms=900 HTTP/1.1\r\n\r\n");
  EXPECT_NE(waiting.read_until("\r\n\r\n").find("204"), std::string::npos);
}

TEST_F(ServerTest, OversizedBodiesAndHeadsAreRefusedByName) {
  ServerOptions options;
  options.body_bytes_max = 1000;
  options.upload_body_bytes_max = 300'000;
  start(options);
  const auto post = [&](const std::string& path, size_t bytes, bool is_chunked) {
    TestSocket socket(server_->port());
    const std::string body(bytes, 'x');
    if (is_chunked) {
      char size[32];
      snprintf(size, sizeof size, "%zx\r\n", bytes);
      socket.send("POST " + path + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + size + body +
                  "\r\n0\r\n\r\n");
    } else {
      socket.send("POST " + path + " HTTP/1.1\r\nContent-Length: " + std::to_string(bytes) +
                  "\r\n\r\n" + body);
    }
    const std::string answer = socket.read_until("127.0.0.1");
    return answer.substr(9, 3) + " " +
           (answer.find("{") == std::string::npos ? "" : reason_in(answer));
  };
  EXPECT_EQ(post("/v1/x", 1000, false), "200 ");
  EXPECT_EQ(post("/v1/x", 1000, true), "200 ");
  EXPECT_EQ(post("/v1/x", 1001, false), "413 body_too_large");
  EXPECT_EQ(post("/v1/x", 1001, true), "413 body_too_large");
  EXPECT_EQ(post("/v1/x", 5'000'000, false), "413 body_too_large");
  EXPECT_EQ(post("/v1/workdirs", 300'000, false), "200 ");
  EXPECT_EQ(post("/v1/workdirs", 300'000, true), "200 ");
  EXPECT_EQ(post("/v1/workdirs", 300'001, false), "413 body_too_large");
  EXPECT_EQ(post("/v1/workdirs", 300'001, true), "413 body_too_large");
  TestSocket socket(server_->port());
  socket.send("GET /x HTTP/1.1\r\nX-Long: " + std::string(20'000, 'h') + "\r\n\r\n");
  const std::string answer = socket.read_until("}");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 431 ")) << answer;
  EXPECT_EQ(reason_in(answer), "header_too_large");
}

TEST_F(ServerTest, ContinueIsAnsweredBeforeTheBodyAndNotForAnOversizedOne) {
  ServerOptions options;
  options.body_bytes_max = 1000;
  start(options);
  TestSocket socket(server_->port());
  socket.send("POST /x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_TRUE(socket.read_until("\r\n\r\n").starts_with("HTTP/1.1 100 Continue"));
  socket.send("12345");
  EXPECT_NE(socket.read_until("127.0.0.1").find("POST 5"), std::string::npos);
  socket.send("POST /x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_TRUE(socket.read_until("}").starts_with("HTTP/1.1 413"));
}

TEST_F(ServerTest, TooManyConnectionsAndUploadsAreTold) {
  ServerOptions options;
  options.connections_max = 3;
  options.body_bytes_max = 10;
  options.uploads_max = 1;
  start(options);
  TestSocket uploading(server_->port());
  uploading.send(
      "POST /v1/workdirs HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n");
  uploading.read_until("100 Continue\r\n\r\n");  // it has its slot now
  TestSocket second(server_->port());
  second.send("POST /v1/workdirs HTTP/1.1\r\nContent-Length: 100\r\n\r\n");
  const std::string busy = second.read_until("}");
  EXPECT_TRUE(busy.starts_with("HTTP/1.1 503 ")) << busy;
  EXPECT_EQ(reason_in(busy), "too_many_uploads");
  uploading.send(std::string(100, 'x'));
  EXPECT_NE(uploading.read_until("127.0.0.1").find("POST 100"), std::string::npos);
  EXPECT_TRUE(second.is_closed_by_peer());
  second.close();

  const auto ping_reason = [&](TestSocket& socket) {
    socket.send(kPing);
    const std::string answer = socket.read_until("GET 0 127.0.0.1", 1000);
    if (answer.starts_with("HTTP/1.1 200 ")) return std::string("ok");
    EXPECT_NE(answer.find("Retry-After: "), std::string::npos) << answer;
    return reason_in(answer);
  };
  std::vector<std::unique_ptr<TestSocket>> sockets;
  // The second one's place comes free a moment after it is closed.
  for (int i = 0; i < 50 && sockets.size() < 2; ++i) {
    sockets.push_back(std::make_unique<TestSocket>(server_->port()));
    if (ping_reason(*sockets.back()) != "ok") sockets.pop_back();
  }
  ASSERT_EQ(sockets.size(), 2u);  // with `uploading` there are three
  TestSocket refused(server_->port());
  EXPECT_EQ(ping_reason(refused), "too_many_connections");
  sockets.pop_back();
  std::string reason;
  for (int i = 0; i < 50 && reason != "ok"; ++i) {
    TestSocket again(server_->port());
    reason = ping_reason(again);
  }
  EXPECT_EQ(reason, "ok");
}

TEST_F(ServerTest, ALongPollWakes) {
  start();
  TestSocket socket(server_->port());
  socket.send("GET /wait?after=0 HTTP/1.1\r\n\r\n");
  wait_for_calls(1);
  server_->wake();  // nothing new: it goes on waiting
  wait_for_calls(2);
  const auto begin = now();
  set_version(7);
  const std::string answer = socket.read_until("7", 2000);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_LT(now() - begin, seconds(1));
  EXPECT_EQ(behaviour_.last_tries, 0);
  socket.send(kPing);  // the connection goes on after it
  EXPECT_NE(socket.read_until("GET 0 127.0.0.1").find("200"), std::string::npos);
}

TEST_F(ServerTest, ALongPollTimesOutAtItsFirstDeadline) {
  start();
  TestSocket socket(server_->port());
  const auto begin = now();
  socket.send("GET /wait?ms=300 HTTP/1.1\r\n\r\n");
  for (int i = 0; i < 5; ++i) {  // looking again does not put the deadline off
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server_->wake();
  }
  EXPECT_NE(socket.read_until("\r\n\r\n").find("204 No Content"), std::string::npos);
  const auto took = now() - begin;
  EXPECT_GE(took, milliseconds(300));
  EXPECT_LT(took, seconds(5));
  EXPECT_EQ(behaviour_.last_tries, 1);
}

TEST_F(ServerTest, AWakeDuringTheLookIsNotLost) {
  start();
  // The handler's look is held open while the state changes; then it says it saw nothing.
  TestSocket socket(server_->port());
  socket.send("GET /keep HTTP/1.1\r\n\r\n");
  wait_for_calls(1);
  server_->wake();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the round finds nobody waiting
  Done done;
  {
    const std::lock_guard lock(behaviour_.mutex);
    done = std::move(behaviour_.kept.back());
    behaviour_.kept.clear();
  }
  done(Waiting{seconds(30), Response{204, {}, {}}});
  wait_for_calls(2);
  const std::lock_guard lock(behaviour_.mutex);
  ASSERT_EQ(behaviour_.kept.size(), 1u);
  behaviour_.kept.back()(Response{200, {}, "seen"});
}

TEST_F(ServerTest, ManyWakesAreFewLooks) {
  start();
  TestSocket socket(server_->port());
  socket.send("GET /wait HTTP/1.1\r\n\r\n");
  wait_for_calls(1);
  const auto begin = now();
  for (int i = 0; i < 10'000; ++i) server_->wake();
  wait_for_calls(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(behaviour_.calls, (now() - begin).ms() / ServerOptions{}.wake_interval.ms() + 3);
}

TEST_F(ServerTest, AClientThatWentAwayIsDropped) {
  start();
  {
    TestSocket socket(server_->port());
    socket.send("GET /wait HTTP/1.1\r\n\r\n");
    wait_for_calls(1);
    server_->wake();
    wait_for_calls(2);
  }
  bool is_dropped = false;
  for (int i = 0; i < 50 && !is_dropped; ++i) {  // until a wake makes nobody look any more
    const int before = behaviour_.calls;
    server_->wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_dropped = behaviour_.calls == before;
  }
  EXPECT_TRUE(is_dropped);
}

TEST_F(ServerTest, AStreamSendsOnWakeBeatsAndEnds) {
  start();
  TestSocket socket(server_->port());
  socket.send("GET /sse HTTP/1.1\r\n\r\n");
  const std::string head = socket.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos) << head;
  EXPECT_NE(socket.read_until(": \n\n").find("4\r\n: \n\n\r\n"), std::string::npos);
  set_version(1);
  EXPECT_NE(socket.read_until("data: 1\n\n").find("9\r\ndata: 1\n\n"), std::string::npos);
  set_version(2);
  socket.read_until("data: 2\n\n");
  set_version(3);
  socket.read_until("data: 3\n\n");
  server_->wake();
  socket.read_until("0\r\n\r\n");
  socket.send(kPing);
  EXPECT_NE(socket.read_until("GET 0 127.0.0.1").find("200 OK"), std::string::npos);
}

TEST_F(ServerTest, MisbehavingHandlersAre500AndTheServerGoesOn) {
  start();
  TestSocket socket(server_->port());
  socket.send("GET /throw HTTP/1.1\r\n\r\n");
  std::string answer = socket.read_until("}");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 500 ")) << answer;
  EXPECT_EQ(reason_in(answer), "internal");
  EXPECT_EQ(answer.find("thrown by a handler"), std::string::npos);  // inner words stay inside
  socket.send("GET /drop HTTP/1.1\r\n\r\n");
  EXPECT_EQ(reason_in(socket.read_until("}")), "handler_gave_no_answer");
  socket.send("GET /thread HTTP/1.1\r\n\r\n");
  EXPECT_NE(socket.read_until("elsewhere").find("200 OK"), std::string::npos);
  socket.send("GET /injected HTTP/1.1\r\n\r\n");
  EXPECT_EQ(socket.read_until("\r\n\r\nx").find("\r\nX-Evil"), std::string::npos);
  socket.send("GET /framed HTTP/1.1\r\n\r\n");
  answer = socket.read_until("\r\n\r\ny");
  EXPECT_NE(answer.find("Content-Length: 1\r\n"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("99"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("chunked"), std::string::npos) << answer;
}

TEST_F(ServerTest, AReaderThatStallsIsDroppedAndOneThatGoesOnIsNot) {
  ServerOptions options;
  options.idle_timeout = seconds(2);
  start(options);
  TestSocket stalled(server_->port());
  stalled.send("GET /big HTTP/1.1\r\n\r\n");
  TestSocket slow(server_->port());
  slow.send("GET /big HTTP/1.1\r\nConnection: close\r\n\r\n");
  std::string got;
  const auto begin = now();
  while (now() - begin < milliseconds(2500)) {  // past the limit, but bytes go all the time
    got += slow.read_some_now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  got += slow.read_until("no such text", 10'000);
  EXPECT_GT(got.size(), size_t{64} << 20);
  EXPECT_TRUE(stalled.is_closed_by_peer());
  EXPECT_LT(stalled.read_until("no such text").size(), size_t{64} << 20);
}

TEST_F(ServerTest, AnyBytesAreSurvived) {
  start();
  SeededRandom random(11);
  const std::string seeds[] = {
      kPing, "POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345",
      "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\n12345\r\n0\r\nT: x\r\n\r\n",
      "GET /wait?ms=1 HTTP/1.0\r\nExpect: 100-continue\r\nUpgrade: h2c\r\n\r\n"};
  for (int round = 0; round < 400; ++round) {
    std::string text = seeds[random.below(std::size(seeds))];
    text += seeds[random.below(std::size(seeds))];
    for (uint64_t i = 0, count = random.below(6); i <= count; ++i) {
      const size_t at = random.below(text.size());
      if (random.chance(50)) text[at] = static_cast<char>(random.below(256));
      if (random.chance(20)) text.erase(at, random.below(8));
      if (random.chance(20)) text.insert(at, text.substr(random.below(text.size() + 1), 40));
      if (text.empty()) text = "\r";
    }
    TestSocket socket(server_->port());
    socket.send(text);
    if (random.chance(30)) socket.read_until("HTTP/1.1", 50);
  }
  TestSocket socket(server_->port());
  socket.send(kPing);
  EXPECT_NE(socket.read_until("GET 0 127.0.0.1").find("200 OK"), std::string::npos);
}

TEST_F(ServerTest, APortInUseIsSaidWithItsNumber) {
  start();
  ServerOptions options;
  options.port = server_->port();
  const auto second = Server::start(options, [](Request, bool, Done) {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().reason, "port_in_use");
  EXPECT_NE(second.error().message.find(std::to_string(options.port)), std::string::npos);
  EXPECT_NE(second.error().hint.find("--port"), std::string::npos);
  options.address = "nonsense";
  EXPECT_EQ(Server::start(options, [](Request, bool, Done) {}).error().reason, "address_invalid");
}

TEST_F(ServerTest, EndingAnswersWaitsAndDropsTheRest) {
  start();
  const uint16_t port = server_->port();
  TestSocket waiting(port), streaming(port), idle(port), half(port), kept(port);
  waiting.send("GET /wait?ms=60000 HTTP/1.1\r\n\r\n");
  streaming.send("GET /sse HTTP/1.1\r\n\r\n");
  half.send("POST /x HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf");
  kept.send("GET /keep HTTP/1.1\r\n\r\n");
  wait_for_calls(3);
  const auto begin = now();
  server_.reset();
  EXPECT_LT(now() - begin, seconds(10));
  EXPECT_NE(waiting.read_until("\r\n\r\n").find("204"), std::string::npos);
  for (TestSocket* socket : {&waiting, &streaming, &idle, &half, &kept}) {
    EXPECT_TRUE(socket->is_closed_by_peer());
  }
  const std::lock_guard lock(behaviour_.mutex);
  ASSERT_EQ(behaviour_.kept.size(), 1u);
  behaviour_.kept.back()(Response{200, {}, "too late"});  // touches memory only
  behaviour_.kept.clear();
}

TEST_F(ServerTest, ARequestInWorkIsStillAnsweredAtTheEnd) {
  start();
  TestSocket socket(server_->port());
  socket.send("GET /keep HTTP/1.1\r\n\r\n");
  wait_for_calls(1);
  std::thread answers([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::lock_guard lock(behaviour_.mutex);
    behaviour_.kept.back()(Response{200, {}, "in time"});
    behaviour_.kept.clear();
  });
  server_.reset();
  answers.join();
  EXPECT_NE(socket.read_until("in time").find("200 OK"), std::string::npos);
}

using ServerDeathTest = ServerTest;
TEST_F(ServerDeathTest, AnsweringTwiceIsABugOfOurs) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        auto server = Server::start({}, [](Request, bool, Done done) {
          done(Response{});
          done(Response{});
        });
        TestSocket socket((*server)->port());
        socket.send(kPing);
        socket.is_closed_by_peer();
      },
      "answered twice");
}

}  // namespace
}  // namespace anychip::net
