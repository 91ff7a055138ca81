#include "sim/agent_host.h"

namespace anychip::sim {

int64_t SimLink::begin(net::Request request, Duration timeout) {
  const int64_t id = ++last_id_;
  open_.insert(id);
  const std::shared_ptr<bool> alive = is_alive_;
  queue_.after(timeout, [this, id, alive] {
    if (*alive) reply(id, fail(Code::kDeadlineExceeded, "timed_out", "no answer"));
  });
  // The message arrives whether or not its sender still lives then; network and server outlive it.
  Network* network = &network_;
  ServerHost* server = &server_;
  network->send(name_, "server", [this, id, alive, network, server, name = name_,
                                  request = std::move(request)] {
    server->handle(request, [this, id, alive, network, name](Result<net::Response> response) {
      network->send("server", name, [this, id, alive, response = std::move(response)] {
        if (*alive) reply(id, response);
      });
    });
  });
  return id;
}

void SimLink::reply(int64_t id, Result<net::Response> response) {
  if (open_.erase(id) == 0) return;  // a second copy, or after the timeout
  replies_.push_back({id, std::move(response)});
  if (wake_) wake_();
}

AgentHost::AgentHost(std::string name, Parts parts, std::string join_token,
                     std::vector<agent::DeviceSeen> devices)
    : name_(std::move(name)), join_token_(std::move(join_token)), parts_(parts),
      clock_(parts.queue),
      runtime_(name_, {parts.queue, parts.random, parts.faults, parts.trace, parts.truth, clock_},
               std::move(devices)) {
  clock_.set_boot_offset(seconds(static_cast<int64_t>(parts.random.below(1'000'000))));
  clock_.step_wall(milliseconds(static_cast<int64_t>(parts.random.below(120'000)) - 60'000));
}

AgentHost::~AgentHost() { agent_.reset(); }

void AgentHost::start() {
  if (agent_) return;
  parts_.trace.add(name_, "agent up");
  link_ = std::make_unique<SimLink>(name_, parts_.queue, parts_.network, parts_.server);
  link_->on_reply([this] { tick_soon(); });
  runtime_.on_change([this] { tick_soon(); });
  agent_ = agent::Agent::create(
      {runtime_, *link_, files_, clock_, parts_.random},
      {.node_name = name_, .join_token = join_token_, .boot_id = "boot-" + name_});
  tick(++life_);
}

void AgentHost::kill() {
  if (!agent_) return;
  parts_.trace.add(name_, "agent killed");
  ++life_;
  runtime_.on_change({});
  agent_.reset();
  link_.reset();
  runtime_.agent_killed();
}

void AgentHost::tick(int64_t life) {
  if (life != life_ || !agent_) return;
  agent_->tick();
  parts_.queue.after(milliseconds(200), [this, life] { tick(life); });
}

void AgentHost::tick_soon() {
  if (is_tick_due_) return;
  is_tick_due_ = true;
  parts_.queue.after(milliseconds(1), [this, life = life_] {
    is_tick_due_ = false;
    if (life == life_ && agent_) agent_->tick();
  });
}

}  // namespace anychip::sim
