// A Runtime, a link and files in memory, for the agent's own tests. Every operation waits until the
// test ends it, so each intermediate state can be looked at.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "base/json.h"

namespace anychip::agent::testing {

class FakeClock final : public Clock {
 public:
  WallTime wall_now() const override { return {now.us + 1'700'000'000'000'000}; }
  MonoTime mono_now() const override { return now; }
  MonoTime now{1'000'000'000};
};

class FakeRuntime final : public Runtime {
 public:
  struct Begun {
    OperationId id;
    Operation operation;
  };
  OperationId begin(Operation operation) override {
    begun.push_back({++last_id_, std::move(operation)});
    return last_id_;
  }
  std::vector<OperationDone> take_done() override { return std::exchange(done, {}); }
  Inventory inventory() override { return seen; }
  Status signal(const InstanceId& instance, int number) override {
    signals.emplace_back(instance.text, number);
    return {};
  }
  Result<std::string> read_stream(const InstanceId& instance, Stream stream, int64_t offset,
                                  int64_t bytes_max) override {
    const std::string& text = streams[{instance.text, stream}];
    if (offset >= static_cast<int64_t>(text.size())) return std::string();
    return text.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes_max));
  }
  Status write_control(const InstanceId& instance, std::string_view text) override {
    controls.emplace_back(instance.text, std::string(text));
    return {};
  }
  // Ends the oldest operation under way with this outcome and returns it.
  Operation finish(Status status = {}) {
    Begun first = std::move(begun.front());
    begun.pop_front();
    done.push_back({first.id, std::move(status)});
    return std::move(first.operation);
  }
  template <class T>
  size_t count() const {
    size_t found = 0;
    for (const Begun& one : begun) found += std::holds_alternative<T>(one.operation) ? 1 : 0;
    return found;
  }
  ContainerSeen& container(const std::string& id) {
    for (ContainerSeen& one : seen.containers) {
      if (one.instance.text == id) return one;
    }
    return seen.containers.emplace_back();
  }

  std::deque<Begun> begun;
  std::vector<OperationDone> done;
  Inventory seen;
  std::vector<std::pair<std::string, int>> signals;
  std::vector<std::pair<std::string, std::string>> controls;
  std::map<std::pair<std::string, Stream>, std::string> streams;

 private:
  OperationId last_id_ = 0;
};

class FakeLink final : public ServerLink {
 public:
  struct Sent {
    int64_t id;
    net::Request request;
    Duration timeout;
  };
  int64_t begin(net::Request request, Duration timeout) override {
    sent.push_back({++last_id_, std::move(request), timeout});
    return last_id_;
  }
  std::vector<Reply> take_replies() override { return std::exchange(replies, {}); }

  // The oldest open request whose target begins so; nullptr = none.
  Sent* find(std::string_view prefix) {
    for (Sent& one : sent) {
      if (one.request.target.starts_with(prefix)) return &one;
    }
    return nullptr;
  }
  bool answer(std::string_view prefix, int status, std::string body = {}) {
    return reply(prefix, net::Response{status, {}, std::move(body)});
  }
  bool lose(std::string_view prefix) {
    return reply(prefix, fail(Code::kUnavailable, "server_unreachable", "lost"));
  }

  std::vector<Sent> sent;
  std::vector<Reply> replies;

 private:
  bool reply(std::string_view prefix, Result<net::Response> response) {
    Sent* open = find(prefix);
    if (open == nullptr) return false;
    replies.push_back({open->id, std::move(response)});
    sent.erase(sent.begin() + (open - sent.data()));
    return true;
  }
  int64_t last_id_ = 0;
};

class FakeFiles final : public AgentFiles {
 public:
  Result<std::string> load_identity() override { return load(identity); }
  Status save_identity(std::string_view text) override { return identity = text, Status{}; }
  Result<std::string> load_state() override { return load(state); }
  Status save_state(std::string_view text) override { return state = text, Status{}; }
  bool has_workdir(const std::string& digest) override { return workdirs.contains(digest); }
  Status save_workdir(const std::string& digest, std::string_view) override {
    workdirs.insert(digest);
    return {};
  }
  std::string workdir_path(const std::string& digest) override { return "/wd/" + digest; }

  std::string identity, state;
  std::set<std::string> workdirs;

 private:
  static Result<std::string> load(const std::string& text) {
    if (text.empty()) return fail(Code::kNotFound, "absent", "not written yet");
    return text;
  }
};

}  // namespace anychip::agent::testing
