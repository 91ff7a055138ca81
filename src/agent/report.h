// The report of contract §2: everything the server may know about this node.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "agent/converge.h"

namespace anychip::agent {

struct ReportParts {
  std::string node_id, boot_id;
  int64_t sequence = 0;
  const Desired* desired = nullptr;  // nullptr: not known yet since this agent started
  const Inventory* inventory = nullptr;
  const Records* records = nullptr;
  const Converger* converger = nullptr;
  std::function<bool(const InstanceId&)> is_shipped;  // all log and metrics acked
  MonoTime now;
};

struct Report {
  std::string body;
  std::string essence;  // what is worth a report at once when it changes
};
Report make_report(const ReportParts& parts);

}  // namespace anychip::agent
