// The few words about each instance that the inventory cannot tell after a restart, kept by
// AgentFiles. Written before the effect they belong to, so a kill at any instant loses nothing.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "agent/agent.h"

namespace anychip::agent {

struct Numbers {  // of a container that has ended, or as last seen
  int exit_code = 0;
  bool is_oom = false, is_supervisor_lost = false;
  int64_t ran_us = 0, memory_peak_bytes = 0, cpu_time_us = 0;
  friend bool operator==(const Numbers&, const Numbers&) = default;
};
Numbers numbers_of(const ContainerSeen& seen, MonoTime now);

struct Record {
  std::string leg_id;
  int64_t generation = 0;
  int64_t seen_version = 0;  // the Desired that first named it: an older one never makes it an orphan
  bool is_started = false;   // a container of this generation was seen: never start it again
  bool is_removed = false;   // RemoveContainer has been proved
  bool is_term_sent = false;
  std::optional<int64_t> stop_seen_ran_us;
  std::optional<Numbers> last;
  std::string failed_reason, failed_message;  // given up: "" = not
  friend bool operator==(const Record&, const Record&) = default;
};

class Records {
 public:
  explicit Records(AgentFiles& files) : files_(files) {}
  // Unreadable state is reported and begun anew: containers then count as never seen before.
  void load();
  void bind(const std::string& node_id);  // another node id: versions of the old server mean nothing
  Record* find(const InstanceId& instance);
  const Record* find(const InstanceId& instance) const;
  const std::map<InstanceId, Record>& all() const { return records_; }
  // Stores and saves when something changed. The change counts in memory even if the disk refuses
  // (the next change tries again): better to stop a container late twice than never.
  void put(const InstanceId& instance, const Record& record);
  void erase(const InstanceId& instance);

 private:
  void save();

  AgentFiles& files_;
  std::string node_id_;
  std::map<InstanceId, Record> records_;
};

}  // namespace anychip::agent
