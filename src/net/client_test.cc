// Proves the client against the real server: one kept connection, reconnecting, timeouts, streams,
// early refusals, cancelling; and 200 clients at once.
#include <atomic>
#include <future>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "net/http.h"
#include "net/problem.h"
#include "net/test_socket.h"

namespace anychip::net {
namespace {

MonoTime now() { return RealClock{}.mono_now(); }

class ClientTest : public ::testing::Test {
 protected:
  void start(Handler handler, ServerOptions options = {}) {
    auto started = Server::start(options, std::move(handler));
    ASSERT_TRUE(started.has_value()) << started.error().to_string();
    server_ = std::move(*started);
  }
  std::unique_ptr<Client> client() {
    auto created =
        Client::create({"http://127.0.0.1:" + std::to_string(server_->port()), seconds(5)});
    EXPECT_TRUE(created.has_value());
    return std::move(*created);
  }
  static Request get(const std::string& target) { return {"GET", target, {}, {}, {}}; }
  static Request post(const std::string& target, std::string body) {
    return {"POST", target, {}, std::move(body), {}};
  }
  std::unique_ptr<Server> server_;
};

void echo(Request request, bool, Done done) {
  done(Response{200, {{"X-Digest", sha256_hex(request.body)}}, request.target + request.body});
}

TEST_F(ClientTest, SendsAndReceivesAnyBytesOnOneConnection) {
  std::atomic<int> calls{0};
  start([&](Request request, bool is_last_try, Done done) {
    ++calls;
    echo(std::move(request), is_last_try, std::move(done));
  });
  auto client = this->client();
  const std::string body("\0\r\n\xff binary", 12);
  for (int i = 0; i < 5; ++i) {
    const auto response = client->send(post("/a?b=1", body), seconds(5));
    ASSERT_TRUE(response.has_value()) << response.error().to_string();
    EXPECT_EQ(response->body, "/a?b=1" + body);
    EXPECT_EQ(header(response->headers, "x-digest"), sha256_hex(body));
  }
  EXPECT_EQ(calls, 5);
}

TEST_F(ClientTest, NamesAreResolvedAndAPathPrefixIsKept) {
  start(echo);
  auto named = Client::create(
      {"http://localhost:" + std::to_string(server_->port()) + "/base/", seconds(5)});
  ASSERT_TRUE(named.has_value());
  const auto response = (*named)->send(get("/v1/x?y"), seconds(5));
  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(response->body, "/base/v1/x?y");
  auto nowhere = Client::create({"http://no-such-host.invalid:1", seconds(5)});
  ASSERT_TRUE(nowhere.has_value());
  EXPECT_EQ((*nowhere)->send(get("/"), seconds(5)).error().reason, "server_unreachable");
}

TEST_F(ClientTest, LargeBodiesGoBothWays) {
  ServerOptions options;
  start(echo, options);
  std::string body(20 << 20, 'x');
  for (size_t i = 0; i < body.size(); i += 997) body[i] = static_cast<char>(i);
  auto client = this->client();
  const auto response = client->send(post("/v1/workdirs", body), seconds(30));
  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(sha256_hex(response->body), sha256_hex("/v1/workdirs" + body));
}

TEST_F(ClientTest, AnEarlyRefusalOfALargeBodyIsRead) {
  start(echo);
  auto client = this->client();
  const auto response = client->send(post("/v1/other", std::string(50 << 20, 'x')), seconds(20));
  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(response->status, 413);
  EXPECT_EQ(error_of(*response).reason, "body_too_large");
  const auto next = client->send(get("/next"), seconds(5));
  ASSERT_TRUE(next.has_value()) << next.error().to_string();
  EXPECT_EQ(next->body, "/next");
}

TEST_F(ClientTest, ReconnectsAfterTheServerClosedOrWasReplaced) {
  ServerOptions options;
  options.idle_timeout = milliseconds(300);
  start(echo, options);
  auto client = this->client();
  ASSERT_TRUE(client->send(get("/1"), seconds(5)).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ASSERT_TRUE(client->send(post("/2", "b"), seconds(5)).has_value());
  options.port = server_->port();
  server_.reset();
  const auto down = client->send(get("/3"), seconds(5));
  ASSERT_FALSE(down.has_value());
  EXPECT_EQ(down.error().code, Code::kUnavailable);
  EXPECT_EQ(down.error().reason, "server_unreachable");
  EXPECT_FALSE(down.error().hint.empty());
  start(echo, options);
  const auto up = client->send(get("/4"), seconds(5));
  ASSERT_TRUE(up.has_value()) << up.error().to_string();
  EXPECT_EQ(up->body, "/4");
}

TEST_F(ClientTest, ATimeoutIsAnErrorAndTheClientGoesOn) {
  std::atomic<bool> answers{false};
  start([&](Request request, bool is_last_try, Done done) {
    if (answers) return echo(std::move(request), is_last_try, std::move(done));
    done(Waiting{seconds(60), {}});
  });
  auto client = this->client();
  const auto begin = now();
  const auto late = client->send(get("/slow"), milliseconds(200));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(late.error().reason, "timed_out");
  EXPECT_LT(now() - begin, seconds(10));
  answers = true;
  const auto next = client->send(get("/quick"), seconds(5));
  ASSERT_TRUE(next.has_value()) << next.error().to_string();
  EXPECT_EQ(next->body, "/quick");
}

TEST_F(ClientTest, ALostConnectionSaysWhetherTheRequestMayBeRepeated) {
  start([](Request, bool, Done) {});
  // A listener that accepts, reads and hangs up without a word.
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 5), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::thread rude([listener] {
    for (int i = 0; i < 3; ++i) {
      const int peer = ::accept(listener, nullptr, nullptr);
      char bytes[4096];
      (void)!::read(peer, bytes, sizeof bytes);
      ::close(peer);
    }
  });
  auto client =
      *Client::create({"http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), {}});
  Request keyed = post("/x", "b");
  keyed.headers.emplace_back("Idempotency-Key", "k");
  const auto lost_get = client->send(get("/x"), seconds(5));
  const auto lost_post = client->send(post("/x", "b"), seconds(5));
  const auto lost_keyed = client->send(keyed, seconds(5));
  rude.join();
  ::close(listener);
  for (const auto* lost : {&lost_get, &lost_post, &lost_keyed}) {
    ASSERT_FALSE(lost->has_value());
    EXPECT_EQ(lost->error().reason, "connection_lost");
  }
  EXPECT_EQ(lost_get.error().code, Code::kUnavailable);
  EXPECT_EQ(lost_post.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(lost_keyed.error().code, Code::kUnavailable);
}

TEST_F(ClientTest, AStreamComesPieceByPieceAndCanBeStopped) {
  std::atomic<int> version{0};
  start([&](Request request, bool, Done done) {
    if (request.path() == "/missing") {
      return done(problem_response({Code::kNotFound, "run_unknown", "no such run", "", {}}));
    }
    auto sent = std::make_shared<int>(0);
    done(Streaming{{200, {{"Content-Type", "text/event-stream"}}, {}},
                   milliseconds(20),
                   [&version, sent]() -> std::optional<std::string> {
                     if (*sent == 4) return std::nullopt;
                     if (*sent >= version) return "";
                     return "data: " + std::to_string(++*sent) + "\n\n";
                   }});
  });
  auto client = this->client();
  std::string seen;
  const auto all = client->stream(get("/events"), seconds(5), [&](std::string_view piece) {
    seen += piece;
    ++version;
    server_->wake();
    return true;
  });
  ASSERT_TRUE(all.has_value()) << all.error().to_string();
  EXPECT_EQ(all->status, 200);
  for (int i = 1; i <= 4; ++i) {
    EXPECT_NE(seen.find("data: " + std::to_string(i) + "\n\n"), std::string::npos) << seen;
  }
  version = 0;
  int pieces = 0;
  ASSERT_TRUE(
      client->stream(get("/events"), seconds(5), [&](std::string_view) { return ++pieces < 2; })
          .has_value());
  EXPECT_EQ(pieces, 2);
  const auto missing = client->stream(get("/missing"), seconds(5), [](std::string_view) {
    ADD_FAILURE() << "an error's body is no piece";
    return false;
  });
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(error_of(*missing).reason, "run_unknown");
}

TEST_F(ClientTest, CancelEndsAWaitAtOnce) {
  start([](Request, bool, Done done) { done(Waiting{seconds(60), {}}); });
  auto client = this->client();
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    client->cancel();
  });
  const auto begin = now();
  const auto response = client->send(get("/wait"), seconds(60));
  canceller.join();
  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().reason, "cancelled");
  EXPECT_LT(now() - begin, seconds(10));
  EXPECT_EQ(client->send(get("/more"), seconds(5)).error().reason, "cancelled");
}

TEST_F(ClientTest, TwoHundredRequestsAtOnceAreEachAnsweredOnce) {
  // Half of them wait for one wake; every answer comes from another thread than the server's.
  std::mutex mutex;
  std::vector<std::pair<Request, Done>> queue;
  std::condition_variable ready;
  bool is_open = false, is_ending = false;
  std::thread worker([&] {
    std::unique_lock lock(mutex);
    for (;;) {
      ready.wait(lock, [&] { return !queue.empty() || is_ending; });
      if (queue.empty()) return;
      auto [request, done] = std::move(queue.back());
      queue.pop_back();
      const bool must_wait = !is_open && request.query("wait").has_value();
      lock.unlock();
      if (must_wait) {
        done(Waiting{seconds(30), Response{204, {}, {}}});
      } else {
        done(Response{200, {}, request.target});
      }
      lock.lock();
    }
  });
  start([&](Request request, bool, Done done) {
    const std::lock_guard lock(mutex);
    queue.emplace_back(std::move(request), std::move(done));
    ready.notify_one();
  });
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 200; ++i) {
    threads.emplace_back([&, i] {
      const std::string target = "/" + std::to_string(i) + (i % 2 == 0 ? "?wait=1" : "");
      const auto response = client()->send(get(target), seconds(30));
      if (response && response->status == 200 && response->body == target) ++right;
    });
  }
  for (int i = 0; i < 500 && right < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(right, 100);
  {
    const std::lock_guard lock(mutex);
    is_open = true;
  }
  server_->wake();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
  {
    const std::lock_guard lock(mutex);
    is_ending = true;
  }
  ready.notify_one();
  worker.join();
}

}  // namespace
}  // namespace anychip::net
