#include "agent/operations.h"

#include "agent/backoff.h"
#include "base/log.h"

namespace anychip::agent {

bool is_permanent(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kPermissionDenied:
    case Code::kUnimplemented:
    case Code::kOutOfRange:
    case Code::kDataLoss: return true;
    default: return error.reason == "image_digest_mismatch" || error.reason == "generation_stale";
  }
}

void Operations::take_done() {
  for (OperationDone& done : runtime_.take_done()) {
    const auto key = keys_.find(done.id);
    if (key == keys_.end()) continue;  // begun by an agent before this one
    const auto found = entries_.find(key->second);
    if (found != entries_.end() && found->second.id == done.id) {
      Entry& entry = found->second;
      entry.id = 0;
      if (done.status) {
        entry.failures = 0;
        entry.has_succeeded = true;
        entry.not_before = clock_.mono_now() + milliseconds(200);  // the inventory shows it next
      } else {
        log::warn("agent.operation_failed", {{"object", key->second},
                                             {"verb", entry.verb},
                                             {"error", done.status.error().to_string()}});
        fail_entry(entry, std::move(done.status).error());
      }
    }
    keys_.erase(key);
  }
}

void Operations::fail_entry(Entry& entry, Error error) {
  ++entry.failures;
  entry.error = std::move(error);
  entry.not_before =
      clock_.mono_now() + pause_after(entry.failures, seconds(1), seconds(60), random_);
}

const Operations::Entry* Operations::find(const std::string& key, std::string_view verb) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.verb == verb ? &found->second : nullptr;
}

Operations::Entry& Operations::entry(const std::string& key, std::string_view verb) {
  Entry& entry = entries_[key];
  if (entry.verb != verb) entry = Entry{.verb = std::string(verb), .not_before = {}, .error = {}};
  return entry;
}

bool Operations::is_busy(const std::string& key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.id != 0;
}

bool Operations::is_busy_with(const std::string& key, std::string_view verb) const {
  const Entry* entry = find(key, verb);
  return entry != nullptr && entry->id != 0;
}

bool Operations::may_try(const std::string& key, std::string_view verb) const {
  if (is_busy(key)) return false;
  const Entry* entry = find(key, verb);
  return entry == nullptr || clock_.mono_now() >= entry->not_before;
}

void Operations::begin(const std::string& key, std::string_view verb, Operation operation) {
  if (!may_try(key, verb)) return;
  Entry& begun = entry(key, verb);
  begun.has_succeeded = false;
  begun.id = runtime_.begin(std::move(operation));
  keys_[begun.id] = key;
  log::debug("agent.operation_begun", {{"object", key}, {"verb", verb}});
}

bool Operations::take_success(const std::string& key, std::string_view verb) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.verb != verb || !found->second.has_succeeded) {
    return false;
  }
  found->second.has_succeeded = false;
  return true;
}

const Error* Operations::failure(const std::string& key, std::string_view verb) const {
  const Entry* entry = find(key, verb);
  return entry != nullptr && entry->failures > 0 ? &entry->error : nullptr;
}

bool Operations::is_given_up(const std::string& key, std::string_view verb) const {
  const Error* error = failure(key, verb);
  return error != nullptr && (find(key, verb)->failures >= kTriesMax || is_permanent(*error));
}

void Operations::retain(const std::set<std::string>& keys) {
  std::erase_if(entries_, [&](const auto& item) {
    return item.second.id == 0 && !keys.contains(item.first);
  });
}

void Operations::note_failure(const std::string& key, std::string_view verb, Error error) {
  fail_entry(entry(key, verb), std::move(error));
}

}  // namespace anychip::agent
