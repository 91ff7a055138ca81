#include "agent/records.h"

#include "base/json.h"
#include "base/log.h"

namespace anychip::agent {
namespace {

json::object to_json(const Numbers& numbers) {
  return {{"exit_code", numbers.exit_code},
          {"oom", numbers.is_oom},
          {"supervisor_lost", numbers.is_supervisor_lost},
          {"ran_us", numbers.ran_us},
          {"memory_peak_bytes", numbers.memory_peak_bytes},
          {"cpu_time_us", numbers.cpu_time_us}};
}

Numbers numbers_from(const json::object& from) {
  return {.exit_code = static_cast<int>(json::int_at(from, "exit_code")),
          .is_oom = json::bool_at(from, "oom"),
          .is_supervisor_lost = json::bool_at(from, "supervisor_lost"),
          .ran_us = json::int_at(from, "ran_us"),
          .memory_peak_bytes = json::int_at(from, "memory_peak_bytes"),
          .cpu_time_us = json::int_at(from, "cpu_time_us")};
}

json::object to_json(const Record& record) {
  json::object out{{"leg_id", record.leg_id},
                   {"generation", record.generation},
                   {"seen_version", record.seen_version},
                   {"started", record.is_started},
                   {"removed", record.is_removed},
                   {"term_sent", record.is_term_sent},
                   {"failed_reason", record.failed_reason},
                   {"failed_message", record.failed_message}};
  if (record.stop_seen_ran_us) out["stop_seen_ran_us"] = *record.stop_seen_ran_us;
  if (record.last) out["last"] = to_json(*record.last);
  return out;
}

Record record_from(const json::object& from) {
  Record record{.leg_id = json::string_at(from, "leg_id"),
                .generation = json::int_at(from, "generation"),
                .seen_version = json::int_at(from, "seen_version"),
                .is_started = json::bool_at(from, "started"),
                .is_removed = json::bool_at(from, "removed"),
                .is_term_sent = json::bool_at(from, "term_sent"),
                .stop_seen_ran_us = {},
                .last = {},
                .failed_reason = json::string_at(from, "failed_reason"),
                .failed_message = json::string_at(from, "failed_message")};
  if (from.contains("stop_seen_ran_us")) {
    record.stop_seen_ran_us = json::int_at(from, "stop_seen_ran_us");
  }
  if (from.contains("last")) record.last = numbers_from(json::object_at(from, "last"));
  return record;
}

}  // namespace

Numbers numbers_of(const ContainerSeen& seen, MonoTime now) {
  const bool has_begun = seen.phase != ContainerPhase::kStarting;
  const MonoTime end = seen.ended.value_or(now);
  const int64_t ran_us = has_begun && end > seen.started ? (end - seen.started).us : 0;
  return {.exit_code = seen.exit_code,
          .is_oom = seen.is_oom,
          .is_supervisor_lost = seen.is_supervisor_lost,
          .ran_us = ran_us,
          .memory_peak_bytes = seen.memory_peak_bytes,
          .cpu_time_us = seen.cpu_time_us};
}

void Records::load() {
  const Result<std::string> text = files_.load_state();
  if (!text) {
    if (text.error().code != Code::kNotFound) {
      log::warn("agent.state_unreadable", {{"error", text.error().to_string()}});
    }
    return;
  }
  const Result<json::value> root = json::parse(*text);
  if (!root || !root->is_object()) {
    log::warn("agent.state_unreadable", {{"error", "not a JSON object"}});
    return;
  }
  node_id_ = json::string_at(root->get_object(), "node_id");
  for (const auto& [id, value] : json::object_at(root->get_object(), "instances")) {
    if (value.is_object()) records_[InstanceId{id}] = record_from(value.get_object());
  }
}

void Records::bind(const std::string& node_id) {
  if (node_id_ == node_id) return;
  node_id_ = node_id;
  for (auto& [id, record] : records_) record.seen_version = 0;
  save();
}

Record* Records::find(const InstanceId& instance) {
  const auto found = records_.find(instance);
  return found == records_.end() ? nullptr : &found->second;
}

const Record* Records::find(const InstanceId& instance) const {
  const auto found = records_.find(instance);
  return found == records_.end() ? nullptr : &found->second;
}

void Records::put(const InstanceId& instance, const Record& record) {
  const auto [place, is_new] = records_.try_emplace(instance, record);
  if (!is_new && place->second == record) return;
  place->second = record;
  save();
}

void Records::erase(const InstanceId& instance) {
  if (records_.erase(instance) > 0) save();
}

void Records::save() {
  json::object instances;
  for (const auto& [id, record] : records_) instances[id.text] = to_json(record);
  const json::object root{{"version", 1}, {"node_id", node_id_}, {"instances", std::move(instances)}};
  if (const Status saved = files_.save_state(json::serialize(root)); !saved) {
    log::error("agent.state_not_saved", {{"error", saved.error().to_string()}});
  }
}

}  // namespace anychip::agent
