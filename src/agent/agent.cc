#include "agent/agent.h"

#include <optional>

#include "agent/backoff.h"
#include "agent/converge.h"
#include "agent/report.h"
#include "agent/streams.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"

namespace anychip::agent {
namespace {

constexpr Duration kAnswerTimeout = seconds(10);
constexpr Duration kWorkdirTimeout = minutes(5);
constexpr Duration kRetryFirst = milliseconds(500);
constexpr Duration kRetryCap = seconds(15);
// A poll younger than this may still bring the version that a report's answer spoke of.
constexpr Duration kPollPatience = seconds(1);

// One kind of request: at most one of it under way, pauses after failures.
struct Lane {
  int64_t id = 0;  // 0 = idle
  MonoTime begun;
  MonoTime not_before;
  int failures = 0;
};

class AgentImpl final : public Agent, private WorkdirFetcher {
 public:
  AgentImpl(AgentParts parts, AgentOptions options)
      : parts_(parts), options_(std::move(options)), records_(parts.files),
        converger_(parts, records_, *this), streams_(parts.runtime, parts.clock) {
    records_.load();
    load_identity();
  }

  void tick() override {
    for (ServerLink::Reply& reply : parts_.link.take_replies()) take(std::move(reply));
    converger_.operations().take_done();
    const Inventory inventory = parts_.runtime.inventory();
    converger_.observe(inventory);
    if (desired_) {
      converger_.converge(*desired_, inventory, desired_->node_id == node_id_);
    }
    for (const auto& [id, record] : records_.all()) {
      if (streams_.is_shipped(id)) converger_.forget_when_shipped(id);
    }
    if (node_key_.empty()) {
      enrol();
      return;
    }
    poll();
    // After converging: operations begun in this tick may have ended at once and show now.
    report(parts_.runtime.inventory());
    ship(inventory);
  }

 private:
  // --- identity ---------------------------------------------------------------------------------
  void load_identity() {
    const Result<std::string> text = parts_.files.load_identity();
    if (!text) return;
    const Result<json::value> root = json::parse(*text);
    if (!root || !root->is_object()) return;
    node_id_ = json::string_at(root->get_object(), "node_id");
    node_key_ = json::string_at(root->get_object(), "node_key");
  }

  void enrol() {
    if (!is_due(enrol_)) return;
    const json::object body{{"join_token", options_.join_token},
                            {"name", options_.node_name},
                            {"protocol", 1}};
    send(enrol_, {.method = "POST", .target = "/agent/v1/enrol", .headers = {},
                  .body = json::serialize(body), .peer = {}}, kAnswerTimeout);
  }

  void on_enrolled(const net::Response& response) {
    const Result<json::value> root = json::parse(response.body);
    if (!root || !root->is_object()) return back_off(enrol_, "enrol", "the answer is no object");
    const std::string node_id = json::string_at(root->get_object(), "node_id");
    const std::string node_key = json::string_at(root->get_object(), "node_key");
    if (node_id.empty() || node_key.empty()) return back_off(enrol_, "enrol", "no identity in it");
    const json::object identity{{"version", 1}, {"node_id", node_id}, {"node_key", node_key},
                                {"name", options_.node_name}};
    if (const Status saved = parts_.files.save_identity(json::serialize(identity)); !saved) {
      return back_off(enrol_, "enrol", saved.error().to_string());
    }
    if (node_id != node_id_) {  // another server: nothing known of the old one holds
      desired_.reset();
      poll_.id = 0;
    }
    node_id_ = node_id;
    node_key_ = node_key;
    records_.bind(node_id);
    essence_.clear();
    for (Lane* lane : {&poll_, &report_, &ship_}) lane->not_before = {};
    log::info("agent.enrolled", {{"node", node_id}});
  }

  // --- requests ---------------------------------------------------------------------------------
  bool is_due(const Lane& lane) const {
    return lane.id == 0 && parts_.clock.mono_now() >= lane.not_before;
  }

  void send(Lane& lane, net::Request request, Duration timeout) {
    if (!node_key_.empty()) request.headers.emplace_back("Authorization", "Bearer " + node_key_);
    if (!request.body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    lane.begun = parts_.clock.mono_now();
    lane.id = parts_.link.begin(std::move(request), timeout);
  }

  void back_off(Lane& lane, std::string_view what, const std::string& why) {
    ++lane.failures;
    lane.not_before = parts_.clock.mono_now() +
                      pause_after(lane.failures, kRetryFirst, kRetryCap, parts_.random);
    if (lane.failures == 1 || lane.failures % 20 == 0) {  // a server away for an hour is one story
      log::warn("agent.request_failed",
                {{"what", what}, {"failures", lane.failures}, {"error", why}});
    }
  }

  void take(ServerLink::Reply reply) {
    if (reply.id == 0) return;
    if (reply.id == enrol_.id) finish(enrol_, "enrol", reply, &AgentImpl::on_enrolled);
    else if (reply.id == poll_.id) finish(poll_, "desired", reply, &AgentImpl::on_desired);
    else if (reply.id == report_.id) finish(report_, "report", reply, &AgentImpl::on_reported);
    else if (reply.id == ship_.id) finish(ship_, "streams", reply, &AgentImpl::on_shipped);
    else if (reply.id == fetch_.id) finish(fetch_, "workdir", reply, &AgentImpl::on_workdir);
    // Any other was given up; what it says is old.
  }

  void finish(Lane& lane, std::string_view what, ServerLink::Reply& reply,
              void (AgentImpl::*on_success)(const net::Response&)) {
    lane.id = 0;
    if (&lane == &ship_ && (!reply.response || reply.response->status != 200)) {
      streams_.on_failure();
    }
    if (!reply.response) {
      if (&lane == &fetch_) note_fetch_failure(reply.response.error());
      return back_off(lane, what, reply.response.error().to_string());
    }
    const int status = reply.response->status;
    if (status == 401 && &lane != &enrol_) {
      if (!node_key_.empty()) log::warn("agent.key_refused", {{"what", what}});
      node_key_.clear();  // enrols again; the id is kept to see whether it is the same server
      return;
    }
    if (status != 200 && status != 201 && status != 204) {
      const std::string why = "HTTP " + std::to_string(status) + " " + reply.response->body.substr(0, 200);
      if (&lane == &fetch_) {
        note_fetch_failure(Error{status == 404 ? Code::kNotFound : Code::kUnavailable,
                                 "workdir_not_fetched", why, {}, {}});
      }
      return back_off(lane, what, why);
    }
    lane.failures = 0;
    (this->*on_success)(*reply.response);
  }

  // --- desired ----------------------------------------------------------------------------------
  void poll() {
    if (is_due(poll_)) begin_poll(options_.desired_wait);
  }

  void begin_poll(Duration wait) {
    const int64_t after = desired_ && !is_version_lost_ ? desired_->version : 0;
    const std::string target = "/agent/v1/desired?after=" + std::to_string(after) +
                               "&wait_s=" + std::to_string(wait.us / 1'000'000);
    send(poll_, {.method = "GET", .target = target, .headers = {}, .body = {}, .peer = {}},
         wait + kAnswerTimeout);
  }

  void on_desired(const net::Response& response) {
    if (response.status == 204) return;
    Result<Desired> desired = parse_desired(response.body);
    if (!desired) return back_off(poll_, "desired", desired.error().to_string());
    if (desired_ && desired_->node_id == desired->node_id && desired->version < desired_->version &&
        !is_version_lost_) {
      return;
    }
    is_version_lost_ = false;
    desired_ = std::move(*desired);
  }

  // --- report -----------------------------------------------------------------------------------
  void report(const Inventory& inventory) {
    if (!is_due(report_)) return;
    const MonoTime now = parts_.clock.mono_now();
    ReportParts report_parts{.node_id = node_id_,
                             .boot_id = options_.boot_id,
                             .sequence = std::max(sequence_ + 1, now.us),
                             .desired = desired_ ? &*desired_ : nullptr,
                             .inventory = &inventory,
                             .records = &records_,
                             .converger = &converger_,
                             .is_shipped = [this](const InstanceId& id) { return streams_.is_shipped(id); },
                             .now = now};
    Report made = make_report(report_parts);
    if (made.essence == essence_ && now - reported_ < options_.report_every) return;
    sequence_ = report_parts.sequence;
    reported_ = now;
    essence_in_flight_ = std::move(made.essence);
    send(report_, {.method = "POST", .target = "/agent/v1/report", .headers = {},
                   .body = std::move(made.body), .peer = {}}, kAnswerTimeout);
  }

  void on_reported(const net::Response& response) {
    essence_ = std::move(essence_in_flight_);
    const Result<json::value> root = json::parse(response.body);
    if (!root || !root->is_object()) return;
    const int64_t newest = json::int_at(root->get_object(), "version");
    const int64_t applied = desired_ ? desired_->version : 0;
    if (newest < applied) {
      // The server was set back to an older state: take that from now on.
      if (++older_count_ >= 3) is_version_lost_ = true;
    } else {
      older_count_ = 0;
    }
    const bool is_behind = newest > applied || is_version_lost_;
    if (is_behind && parts_.clock.mono_now() - poll_.begun > kPollPatience) {
      begin_poll(Duration{});  // the long poll or its answer got lost; a late one is ignored
    }
  }

  // --- streams and workdirs ---------------------------------------------------------------------
  void ship(const Inventory& inventory) {
    if (!is_due(ship_)) return;
    std::optional<std::string> body = streams_.next_body(records_, inventory);
    if (!body) return;
    send(ship_, {.method = "POST", .target = "/agent/v1/streams", .headers = {},
                 .body = std::move(*body), .peer = {}}, kAnswerTimeout);
  }

  void on_shipped(const net::Response& response) {
    streams_.on_answer(response.body, records_, desired_ ? &*desired_ : nullptr);
  }

  void fetch_workdir(const std::string& digest) override {
    if (!is_due(fetch_) || node_key_.empty()) return;
    fetching_ = digest;
    send(fetch_, {.method = "GET", .target = "/agent/v1/workdirs/" + net::url_encode(digest),
                  .headers = {}, .body = {}, .peer = {}}, kWorkdirTimeout);
  }

  void on_workdir(const net::Response& response) {
    if (sha256_hex(response.body) != fetching_) {
      return note_fetch_failure(Error{Code::kAborted, "workdir_damaged",
                                      "the workdir that came is not the one asked for", {}, {}});
    }
    if (const Status saved = parts_.files.save_workdir(fetching_, response.body); !saved) {
      note_fetch_failure(saved.error());
    }
  }

  void note_fetch_failure(Error error) {
    converger_.operations().note_failure("workdir " + fetching_, "fetch", std::move(error));
  }

  AgentParts parts_;
  AgentOptions options_;
  Records records_;
  Converger converger_;
  StreamShipper streams_;
  std::string node_id_, node_key_;
  std::optional<Desired> desired_;
  bool is_version_lost_ = false;
  int older_count_ = 0;
  Lane enrol_, poll_, report_, ship_, fetch_;
  std::string fetching_;
  int64_t sequence_ = 0;
  MonoTime reported_;
  std::string essence_, essence_in_flight_;
};

}  // namespace

std::unique_ptr<Agent> Agent::create(AgentParts parts, AgentOptions options) {
  return std::make_unique<AgentImpl>(parts, std::move(options));
}

}  // namespace anychip::agent
