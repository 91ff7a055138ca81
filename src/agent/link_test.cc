#include "agent/link.h"

#include <atomic>
#include <filesystem>

#include <gtest/gtest.h>

#include "agent/files.h"

namespace anychip::agent {
namespace {
namespace fs = std::filesystem;

std::vector<ServerLink::Reply> wait_for(ThreadedLink& link, size_t count) {
  std::vector<ServerLink::Reply> all;
  for (int i = 0; i < 100 && all.size() < count; ++i) {
    link.wait(milliseconds(100));
    for (ServerLink::Reply& reply : link.take_replies()) all.push_back(std::move(reply));
  }
  return all;
}

TEST(ThreadedLink, AReportAndAQuickPollPassALongPoll) {
  auto server = net::Server::start({}, [](net::Request request, bool is_last_try, net::Done done) {
    const bool is_long = request.target == "/agent/v1/desired?after=1&wait_s=5";
    if (is_long && !is_last_try) return done(net::Waiting{seconds(2), {204, {}, {}}});
    done(net::Response{200, {}, request.target});
  });
  ASSERT_TRUE(server) << server.error().to_string();
  auto link = ThreadedLink::create("http://127.0.0.1:" + std::to_string((*server)->port()));
  ASSERT_TRUE(link);
  net::Request request;
  request.method = "GET";
  request.target = "/agent/v1/desired?after=1&wait_s=5";
  const int64_t poll = (*link)->begin(request, seconds(10));
  request.target = "/agent/v1/report";
  const int64_t report = (*link)->begin(request, seconds(10));
  request.target = "/agent/v1/desired?after=1&wait_s=0";
  const int64_t quick = (*link)->begin(request, seconds(10));
  const auto replies = wait_for(**link, 3);
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[0].id, report);
  EXPECT_EQ(replies[1].id, quick);
  EXPECT_EQ(replies[2].id, poll);
  ASSERT_TRUE(replies[1].response);
  EXPECT_EQ(replies[1].response->body, "/agent/v1/desired?after=1&wait_s=0");
}

TEST(ThreadedLink, AnAbsentServerIsAnErrorAndTheEndDoesNotWaitForAPoll) {
  auto server = net::Server::start({}, [](net::Request, bool, net::Done done) {
    done(net::Waiting{seconds(60), {204, {}, {}}});
  });
  ASSERT_TRUE(server);
  const std::string url = "http://127.0.0.1:" + std::to_string((*server)->port());
  net::Request request;
  request.method = "GET";
  request.target = "/agent/v1/desired?after=1&wait_s=20";
  const MonoTime begin = RealClock{}.mono_now();
  {
    auto link = ThreadedLink::create(url);
    ASSERT_TRUE(link);
    (*link)->begin(request, seconds(60));
    (*link)->wait(milliseconds(200));
  }
  EXPECT_LT((RealClock{}.mono_now() - begin).seconds(), 5.0);
  server->reset();
  auto link = ThreadedLink::create(url);
  ASSERT_TRUE(link);
  (*link)->begin(request, seconds(5));
  const auto replies = wait_for(**link, 1);
  ASSERT_EQ(replies.size(), 1u);
  ASSERT_FALSE(replies[0].response);
  EXPECT_EQ(replies[0].response.error().reason, "server_unreachable");
}

TEST(FolderFiles, KeepsIdentityPrivateAndRefusesAStrangeDigest) {
  std::string pattern = (fs::temp_directory_path() / "anychip-agent-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  {
    auto files = FolderFiles::create(pattern + "/agent");
    ASSERT_TRUE(files);
    EXPECT_EQ((*files)->load_identity().error().code, Code::kNotFound);
    EXPECT_EQ((*files)->load_state().error().code, Code::kNotFound);
    ASSERT_TRUE((*files)->save_identity("{}"));
    const auto mode = fs::status(pattern + "/agent/node.json").permissions();
    EXPECT_EQ(mode & (fs::perms::group_all | fs::perms::others_all), fs::perms::none);
    EXPECT_FALSE((*files)->save_workdir("../../etc/passwd", "x"));
    EXPECT_FALSE((*files)->has_workdir("../agent/node.json"));
    const std::string digest(64, 'a');
    ASSERT_TRUE((*files)->save_workdir(digest, "tar"));
    EXPECT_TRUE((*files)->has_workdir(digest));
    EXPECT_TRUE(fs::exists((*files)->workdir_path(digest)));
  }
  fs::remove_all(pattern);
}

}  // namespace
}  // namespace anychip::agent
