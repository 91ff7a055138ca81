// Tests run whole command lines in this process against a fake API server on loopback.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/context.h"
#include "cli/parser.h"
#include "net/http.h"
#include "net/problem.h"
#include "sys/files.h"

namespace anychip::cli {

struct Outcome {
  int status = 0;
  std::string out, err;
};

inline net::Response json_response(const std::string& body, int status = 200) {
  return {status, {{"Content-Type", "application/json"}}, body};
}

class CliTest : public ::testing::Test {
 protected:
  using Answer = std::function<net::Response(const net::Request&)>;

  void SetUp() override {
    folder_ = testing::TempDir() + "anychip-cli-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    for (const char* name : {"ANYCHIP_URL", "ANYCHIP_TOKEN", "ANYCHIP_DATA", "LC_ALL", "LANG"})
      unsetenv(name);
    auto server = net::Server::start(
        {}, [this](net::Request request, bool, net::Done done) { done(answer(request)); });
    ASSERT_TRUE(server) << server.error().to_string();
    server_ = std::move(*server);
    url_ = "http://127.0.0.1:" + std::to_string(server_->port());
    ASSERT_TRUE(save_client_file(folder_, {url_, "secret-token", "me", {}}));
  }
  void TearDown() override {
    server_.reset();
    (void)sys::remove_tree(folder_);
  }

  // "GET /v1/runs/demo" (without the query) is answered with this.
  void route(const std::string& method_and_path, Answer answer) {
    const std::lock_guard lock(mutex_);
    routes_[method_and_path] = std::move(answer);
  }
  void route(const std::string& method_and_path, const std::string& body, int status = 200) {
    route(method_and_path, [=](const net::Request&) { return json_response(body, status); });
  }
  void refuse(const std::string& method_and_path, Code code, const std::string& reason) {
    route(method_and_path, [=](const net::Request&) {
      return net::problem_response(Error{code, reason, "refused: " + reason, "the way out", {}});
    });
  }

  Outcome call(std::vector<std::string> arguments) {
    Outcome outcome;
    Terminal terminal;
    terminal.out = [&](std::string_view text) { outcome.out += text; };
    terminal.err = [&](std::string_view text) { outcome.err += text; };
    arguments.insert(arguments.begin(), {"--data", folder_});
    outcome.status = run_command_line(arguments, terminal, {});
    return outcome;
  }

  std::vector<net::Request> requests(const std::string& method_and_path) {
    const std::lock_guard lock(mutex_);
    std::vector<net::Request> found;
    for (const net::Request& request : seen_) {
      if (key_of(request) == method_and_path) found.push_back(request);
    }
    return found;
  }
  json::object body_of(const std::string& method_and_path) {
    const auto all = requests(method_and_path);
    EXPECT_EQ(all.size(), 1u) << method_and_path;
    return all.empty() ? json::object{} : json::parse(all.back().body).value().as_object();
  }

  std::string folder_, url_;
  std::unique_ptr<net::Server> server_;

 private:
  static std::string key_of(const net::Request& request) {
    return request.method + " " + std::string(request.path());
  }
  net::Response answer(const net::Request& request) {
    Answer found;
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(request);
      const auto route = routes_.find(key_of(request));
      if (route != routes_.end()) found = route->second;
    }
    if (found) return found(request);
    return net::problem_response(
        Error{Code::kNotFound, "route_unknown", "no route " + key_of(request), "", {}});
  }

  std::mutex mutex_;
  std::map<std::string, Answer> routes_;
  std::vector<net::Request> seen_;
};

}  // namespace anychip::cli
