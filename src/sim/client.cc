#include "sim/client.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace anychip::sim {
namespace {

constexpr Duration kPatience = seconds(10);
constexpr const char* kChips[] = {"cpu", "tpu-sim", "npu-sim"};

bool is_ended(const std::string& state) {
  return state == "stopped" || state == "finished" || state == "failed";
}

json::object object_of(const net::Response& response) {
  const Result<json::value> root = json::parse(response.body);
  return root && root->is_object() ? root->get_object() : json::object{};
}

}  // namespace

Client::Client(std::string name, Parts parts, int runs_wanted)
    : name_(std::move(name)), parts_(std::move(parts)), runs_left_(runs_wanted) {}

void Client::begin() { make_account(1); }

bool Client::is_done() const {
  if (open_ > 0 || !is_account_made_) return false;
  for (const bool is_left : is_left_) {
    if (!is_left) return false;
  }
  return is_calm_ || runs_left_ == 0;
}

net::Request Client::request(std::string method, std::string target, json::object body) {
  net::Request made;
  made.method = std::move(method);
  made.target = std::move(target);
  if (!token_.empty()) made.headers.emplace_back("Authorization", "Bearer " + token_);
  if (made.method == "POST") {
    made.headers.emplace_back("Content-Type", "application/json");
    made.body = json::serialize(body);
  }
  return made;
}

std::string Client::new_key() { return fmt::format("{}-{}", name_, ++keys_); }

void Client::pause(int64_t least_ms, int64_t most_ms, std::function<void()> then) {
  const auto range = static_cast<uint64_t>(most_ms - least_ms);
  const auto extra = static_cast<int64_t>(parts_.random.below(range));
  parts_.queue.after(milliseconds(least_ms + extra), std::move(then));
}

void Client::attempt(net::Request asked, std::function<void(std::optional<net::Response>)> done) {
  if (parts_.faults.planted == Planted::kNoIdempotencyKey) {
    std::erase_if(asked.headers, [](const auto& header) { return header.first == "Idempotency-Key"; });
  }
  auto is_over = std::make_shared<bool>(false);
  auto finish = std::make_shared<std::function<void(std::optional<net::Response>)>>(std::move(done));
  parts_.queue.after(kPatience, [is_over, finish] {
    if (!std::exchange(*is_over, true)) (*finish)(std::nullopt);
  });
  parts_.network.send(name_, "server", [this, asked = std::move(asked), is_over, finish] {
    parts_.server.handle(asked, [this, is_over, finish](Result<net::Response> response) {
      if (!response) return;  // a broken connection: the client waits for its time and asks again
      parts_.network.send("server", name_, [is_over, finish, response = *response] {
        if (!std::exchange(*is_over, true)) (*finish)(response);
      });
    });
  });
}

void Client::insist(net::Request asked, Done done) {
  ++open_;
  attempt(asked, [this, asked, done = std::move(done)](std::optional<net::Response> response) {
    --open_;
    const bool is_said = response && (response->status < 500 || response->status == 503);
    if (is_said) return done(*response);
    ++open_;
    pause(300, 3000, [this, asked, done] {
      --open_;
      insist(asked, done);
    });
  });
}

void Client::make_account(int attempt_number) {
  net::Request asked =
      request("POST", "/v1/accounts", {{"name", fmt::format("{}-{}", name_, attempt_number)}});
  asked.headers.emplace_back("Authorization", "Bearer " + parts_.admin_token);
  insist(asked, [this, attempt_number](const net::Response& response) {
    if (response.status != 201) {
      if (response.status != 409) parts_.truth.violated("no account: " + response.body);
      return make_account(attempt_number + 1);
    }
    token_ = json::string_at(object_of(response), "token");
    is_account_made_ = true;
    upload_workdir();
  });
}

void Client::upload_workdir() {
  net::Request asked = request("POST", "/v1/workdirs");
  asked.body = "workdir of " + name_.substr(0, 7);
  workdir_digest_ = sha256_hex(asked.body);
  asked.headers.emplace_back("X-Content-Sha256", workdir_digest_);
  insist(asked, [this](const net::Response& response) {
    if (response.status >= 300) parts_.truth.violated("workdir refused: " + response.body);
    make_run();
  });
}

void Client::make_run() {
  if (runs_left_ == 0 || is_calm_) return;
  ClientRun run;
  run.name = fmt::format("{}-run{}", name_, runs_left_);
  run.chip = kChips[parts_.random.below(3)];
  run.steps_total = static_cast<int64_t>(40 + parts_.random.below(160));
  const int64_t step_ms = static_cast<int64_t>(150 + parts_.random.below(700));
  run.save_every = static_cast<int64_t>(5 + parts_.random.below(40));
  json::object body{
      {"name", run.name},
      {"image", "pytorch"},
      {"command", {"python", "train.py", "--backend", "cpu", "--steps", std::to_string(run.steps_total),
                   "--step-ms", std::to_string(step_ms), "--save-every", std::to_string(run.save_every)}},
      {"workdir", json::object{{"digest", workdir_digest_}}},
      {"chip", run.chip},
      {"count", 1},
      {"system_disk_bytes", 1 << 30},
      {"checkpoint_bytes", 1 << 30},
      {"restarts_max", 20}};
  if (!runs_.empty() && parts_.random.chance(30)) body["reference_of"] = runs_.front().id;
  if (parts_.random.chance(10)) body["stop_at_step"] = run.steps_total / 2;
  net::Request asked = request("POST", "/v1/runs", std::move(body));
  asked.headers.emplace_back("Idempotency-Key", new_key());
  insist(asked, [this, asked, run](const net::Response& response) { run_made(asked, response, run); });
}

void Client::run_made(const net::Request& sent, const net::Response& response, ClientRun run) {
  const std::string code = json::string_at(object_of(response), "code");
  if (response.status != 201) {
    // No device, no node yet, no money: later, or never.
    if (code == "funds_insufficient") runs_left_ = 0;
    // The run it was to be compared with may be deleted meanwhile.
    if (code == "run_unknown" && sent.body.find("reference_of") != std::string::npos) {
      return pause(1000, 5000, [this] { make_run(); });
    }
    const bool is_expected =
        code == "no_capacity" || code == "count_exceeds_total" || code == "funds_insufficient";
    if (!is_expected) parts_.truth.violated("run refused: " + response.body);
    if (runs_left_ == 0 || is_calm_) return;
    // The same key again: a copy of the refused request that comes late makes the same run.
    pause(4000, 15'000, [this, sent, run] {
      insist(sent, [this, sent, run](const net::Response& later) { run_made(sent, later, run); });
    });
    return;
  }
  run.id = json::string_at(object_of(response), "id");
  --runs_left_;
  runs_.push_back(run);
  is_left_.push_back(false);
  parts_.trace.add(name_, "run acknowledged " + run.id);
  if (parts_.random.chance(parts_.faults.client_retry_percent)) repeat_with_same_key(sent, response);
  const size_t index = runs_.size() - 1;
  pause(500, 8000, [this, index] { act(index); });
  pause(1000, 40'000, [this] { make_run(); });
}

// The same request again must give the same answer; another body under this key is refused.
void Client::repeat_with_same_key(net::Request sent, const net::Response& first) {
  const std::string id = json::string_at(object_of(first), "id");
  insist(sent, [this, id](const net::Response& again) {
    if (again.status == 503) return;
    if (json::string_at(object_of(again), "id") != id) {
      parts_.truth.violated("the same key gave another answer: " + id + " then " + again.body);
    }
  });
  sent.body = R"({"other":"body"})";
  insist(sent, [this](const net::Response& response) {
    if (response.status != 422 && response.status != 503) {
      parts_.truth.violated(fmt::format("another body under a used key: {} {}", response.status,
                                        response.body));
    }
  });
}

void Client::act(size_t index) {
  if (runs_[index].is_deleted) return leave(index);
  if (is_ended(runs_[index].last_state)) return leave(index);
  pause(1000, is_calm_ ? 20'000 : 9000, [this, index] { act(index); });
  const uint64_t die = parts_.random.below(100);
  if (is_calm_ || die < 40) read_run(index);
  else if (die < 62) ask_switch(index);
  else if (die < 68) cancel_switch(index);
  else if (die < 71) ask_stop(index);
  else if (die < 88) read_around(index);
  else ask_nonsense(index);
}

void Client::read_run(size_t index) {
  insist(request("GET", "/v1/runs/" + runs_[index].id), [this, index](const net::Response& response) {
    if (response.status == 200) return saw_run(index, object_of(response));
    if (response.status == 404 && !runs_[index].is_delete_asked) {
      parts_.truth.violated("an acknowledged run is not there: " + runs_[index].id);
    }
  });
}

void Client::saw_run(size_t index, const json::object& seen) {
  ClientRun& run = runs_[index];
  run.last_state = json::string_at(seen, "state");
  for (const json::value& item : json::array_at(seen, "legs")) {
    const std::string id = json::string_at(item.get_object(), "id");
    const int64_t metered_us = json::int_at(item.get_object(), "metered_us");
    int64_t& most_us = run.metered_us[id];
    // Answers may overtake each other on the way, so only a lasting decrease counts: checked at the
    // end against the highest value ever seen.
    most_us = std::max(most_us, metered_us);
  }
}

void Client::ask_switch(size_t index) {
  json::object body{{"chip", kChips[parts_.random.below(3)]}, {"verify_steps", 3}};
  if (parts_.random.chance(40)) {
    body["at_step"] = static_cast<int64_t>(
        1 + parts_.random.below(static_cast<uint64_t>(runs_[index].steps_total)));
  }
  net::Request asked = request("POST", "/v1/runs/" + runs_[index].id + "/switch", std::move(body));
  asked.headers.emplace_back("Idempotency-Key", new_key());
  insist(asked, [this, index, asked](const net::Response& response) {
    if (response.status != 202) {
      if (response.status < 400) parts_.truth.violated("switch answered " + response.body);
      return;
    }
    runs_[index].switches.push_back(json::string_at(object_of(response), "id"));
    parts_.trace.add(name_, "switch acknowledged " + runs_[index].switches.back());
    if (parts_.random.chance(parts_.faults.client_retry_percent)) repeat_with_same_key(asked, response);
  });
}

void Client::cancel_switch(size_t index) {
  if (runs_[index].switches.empty()) return;
  insist(request("POST", "/v1/runs/" + runs_[index].id + "/switches/" +
                             runs_[index].switches.back() + "/cancel"),
         [](const net::Response&) {});
}

void Client::ask_stop(size_t index) {
  runs_[index].is_stop_asked = true;
  insist(request("POST", "/v1/runs/" + runs_[index].id + "/stop"), [](const net::Response&) {});
}

void Client::read_around(size_t index) {
  const std::string base = "/v1/runs/" + runs_[index].id;
  const std::string targets[] = {
      base + "/logs?after=0&limit_bytes=2000&wait_s=2", base + "/logs?after=100&wait_s=3",
      base + "/metrics?after_step=10&limit=50",         base + "/metrics?leg=0",
      base + "/events?after=0&wait_s=2",                base + "/events?after=5&wait_s=4",
      base + "/compare",                                base + "/switches",
      "/v1/account",      "/v1/chips",     "/v1/images",    "/v1/templates",
      "/v1/offers",       "/v1/nodes",     "/v1/runs",      "/v1/runs?state=running&limit=1",
      "/v1/instances",    "/v1/volumes",   "/v1/snapshots", "/healthz",
      "/readyz",          base + "/logs?leg=0",
      base + "/compare?against=" + runs_.front().id};
  const std::string target = targets[parts_.random.below(std::size(targets))];
  insist(request("GET", target), [this, target](const net::Response& response) {
    if (response.status != 200 && response.status != 404 && response.status != 503) {
      parts_.truth.violated(fmt::format("GET {}: {} {}", target, response.status, response.body));
    }
  });
}

// With this `code`, or any refusal where the contract names none.
void Client::expect_refusal(net::Request asked, std::string code) {
  insist(asked, [this, asked, code](const net::Response& response) {
    const bool is_refusal = response.status >= 400 && response.status < 500;
    const bool is_right = code.empty() || json::string_at(object_of(response), "code") == code;
    if (response.status != 503 && !(is_refusal && is_right)) {
      parts_.truth.violated(fmt::format("{} {} {}: {} instead of {}: {}", asked.method, asked.target,
                                        asked.body, response.status, code, response.body));
    }
  });
}

void Client::ask_nonsense(size_t index) {
  const std::string base = "/v1/runs/" + runs_[index].id;
  const auto run = [&](json::object body) { return request("POST", "/v1/runs", std::move(body)); };
  const json::value command{"python", "train.py"};
  switch (parts_.random.below(10)) {
    case 0: {
      net::Request asked = request("GET", "/v1/runs");
      asked.headers = {{"Authorization", "Bearer wrong"}};
      return expect_refusal(asked, "token_invalid");
    }
    case 1: return expect_refusal(run({{"name", "x"}, {"image", "pytorch"}, {"command", command},
                                       {"chip", "tpu-sym"}}), "chip_unknown");
    case 2: return expect_refusal(run({{"name", "x"}, {"image", "pytorch"}, {"command", command},
                                       {"chip", "cpu"}, {"count", 0}}), "count_invalid");
    case 3: return expect_refusal(request("GET", "/v1/runs/no-such-run"), "");
    case 4: return expect_refusal(request("GET", "/v1/nothing"), "");
    case 5: {
      net::Request asked = run({});
      asked.body = "\x01\x02 no JSON";
      return expect_refusal(asked, "");
    }
    case 6: return expect_refusal(request("GET", base + "/logs?after=-1"), "");
    case 7: return expect_refusal(request("POST", base + "/switch", {{"chip", "nothing-9000"}}), "");
    case 8: return expect_refusal(request("GET", "/v1/runs?limit=100000"), "");
    default: return expect_refusal(request("GET", "/v1/instances/ins_unknown"), "");
  }
}

// The run has ended: look once more, perhaps delete it.
void Client::leave(size_t index) {
  if (is_left_[index]) return;
  if (runs_[index].is_deleted || !parts_.random.chance(30)) {
    is_left_[index] = true;
    return;
  }
  runs_[index].is_delete_asked = true;  // from now on a read may find it or not
  insist(request("DELETE", "/v1/runs/" + runs_[index].id), [this, index](const net::Response& response) {
    if (response.status == 503) return pause(1000, 2000, [this, index] { leave(index); });
    if (response.status == 409) {  // not all of it is gone yet
      return pause(2000, 8000, [this, index] { act(index); });
    }
    runs_[index].is_deleted = true;
    is_left_[index] = true;
  });
}

}  // namespace anychip::sim
