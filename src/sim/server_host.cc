#include "sim/server_host.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"

namespace anychip::sim {

// A store whose process dies in the middle: the database keeps what was committed, nobody hears.
class CrashStore final : public store::Store {
 public:
  explicit CrashStore(std::unique_ptr<store::Store> inner) : inner_(std::move(inner)) {}

  void arm(int64_t writes_before, bool is_after_commit, std::function<void()> crashed) {
    countdown_ = writes_before;
    is_after_commit_ = is_after_commit;
    crashed_ = std::move(crashed);
  }
  void submit(store::Write write, std::function<void(Error)> failed) override {
    if (is_dead_) return;
    if (!crashed_ || countdown_-- > 0) return inner_->submit(std::move(write), std::move(failed));
    is_dead_ = true;
    if (is_after_commit_) {
      inner_->submit(
          [write = std::move(write)](store::Db& db) -> Result<std::function<void()>> {
            TRY_VOID(write(db));
            return std::function<void()>([] {});
          },
          [](const Error&) {});
    }
    std::exchange(crashed_, nullptr)();
  }
  void read(std::function<void(store::Db&)> reader) override {
    if (!is_dead_) inner_->read(std::move(reader));
  }
  void on_commit(std::function<void()> committed) override {
    inner_->on_commit([this, committed = std::move(committed)] {
      if (!is_dead_) committed();
    });
  }
  void drain() override { inner_->drain(); }
  Status backup(const std::string& path) override { return inner_->backup(path); }

 private:
  std::unique_ptr<store::Store> inner_;
  bool is_dead_ = false, is_after_commit_ = false;
  int64_t countdown_ = 0;
  std::function<void()> crashed_;
};

ServerHost::ServerHost(Parts parts, server::CoreOptions options)
    : parts_(std::move(parts)), options_(std::move(options)), clock_(parts_.queue) {}

ServerHost::~ServerHost() {
  core_.reset();
  store_.reset();
}

void ServerHost::start() {
  if (core_) return;
  auto opened = store::open_inline({.path = parts_.database, .is_durable = false},
                                   server::migrations());
  CHECK_MSG(opened.has_value(), opened ? "" : opened.error().to_string());
  store_ = std::make_unique<CrashStore>(std::move(*opened));
  store_->on_commit([this] { wake(); });
  core_ = server::Core::create({*store_, parts_.catalog, clock_, parts_.random, blobs_}, options_);
  parts_.trace.add("server", "up");
  tick(++life_);
}

void ServerHost::kill() {
  if (!core_) return;
  parts_.trace.add("server", "killed");
  ++life_;
  std::map<int64_t, Open> lost = std::exchange(open_, {});
  core_.reset();
  store_.reset();
  for (auto& [id, open] : lost) {
    open.answer(fail(Code::kUnavailable, "connection_lost", "the server went away"));
  }
}

void ServerHost::crash_in_a_write(std::function<void()> then) {
  if (!core_) return;
  const auto writes = static_cast<int64_t>(parts_.random.below(8));
  store_->arm(writes, parts_.random.chance(50), [this, then = std::move(then), life = life_] {
    parts_.queue.after({}, [this, then, life] {  // not under the feet of the running Core
      if (life != life_) return;
      kill();
      then();
    });
  });
}

void ServerHost::tick(int64_t life) {
  if (life != life_ || !core_) return;
  core_->tick();
  parts_.queue.after(milliseconds(250), [this, life] { tick(life); });
}

void ServerHost::handle(net::Request request, Answer answer_to) {
  if (!core_) {
    answer_to(fail(Code::kUnavailable, "server_unreachable", "connection refused"));
    return;
  }
  const int64_t id = ++last_id_;
  Open open;
  open.id = id;
  open.request = std::move(request);
  open.answer = std::move(answer_to);
  open_.emplace(id, std::move(open));
  try_handle(id, false);
}

void ServerHost::try_handle(int64_t id, bool is_last_try) {
  const auto found = open_.find(id);
  if (found == open_.end() || !core_) return;
  found->second.is_waiting = false;
  core_->handle(found->second.request, is_last_try,
                [this, id, is_last_try, life = life_](net::Outcome outcome) {
                  if (life == life_) take(id, std::move(outcome), is_last_try);
                });
}

void ServerHost::take(int64_t id, net::Outcome outcome, bool is_last_try) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  if (auto* response = std::get_if<net::Response>(&outcome)) return answer(id, std::move(*response));
  auto* waiting = std::get_if<net::Waiting>(&outcome);
  CHECK_MSG(waiting != nullptr, "a streaming answer: the simulator has no client for it");
  if (is_last_try) return answer(id, std::move(waiting->otherwise));
  Open& open = found->second;
  open.is_waiting = true;
  if (open.deadline.us != 0) return;  // asked again by a wake: the first deadline holds
  open.deadline = parts_.queue.now() + waiting->wait;
  parts_.queue.at(open.deadline, [this, id, life = life_] {
    if (life == life_) try_handle(id, true);
  });
}

void ServerHost::answer(int64_t id, net::Response response) {
  const auto found = open_.find(id);
  Open open = std::move(found->second);
  open_.erase(found);
  parts_.trace.add("server", fmt::format("{} {} -> {} {}", open.request.method, open.request.target,
                                         response.status, sha256_hex(response.body).substr(0, 8)));
  if (response.status >= 500 && response.status != 503) {
    if (count_5xx_++ == 0) {
      first_5xx_ = fmt::format("{} {} -> {} {}", open.request.method, open.request.target,
                               response.status, response.body);
    }
  }
  open.answer(std::move(response));
}

void ServerHost::wake() {
  if (is_wake_due_) return;
  is_wake_due_ = true;
  parts_.queue.after({}, [this] {
    is_wake_due_ = false;
    std::vector<int64_t> waiting;
    for (const auto& [id, open] : open_) {
      if (open.is_waiting) waiting.push_back(id);
    }
    for (const int64_t id : waiting) try_handle(id, false);
  });
}

}  // namespace anychip::sim
