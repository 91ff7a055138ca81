// What this machine must have before `up` changes anything; the same list for `doctor`.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace anychip::cli {

// Read from the machine once; the judgement over it is pure.
struct MachineFacts {
  bool is_root = false;
  std::set<std::string> file_systems;  // known to the kernel, or as a module of it
  bool has_loop_control = false;
  int64_t user_namespaces_max = 0;
  bool has_memory_cgroup = false, has_devices_cgroup = false;
  std::set<std::string> programs;  // found, of kProgramsNeeded
  std::string data;
  int64_t free_bytes = 0;  // where the data folder is or would be
};

inline constexpr int64_t kFreeBytesMin = 4LL << 30;    // `up` refuses below
inline constexpr int64_t kFreeBytesGood = 12LL << 30;  // three image variants and a few runs

struct Check {
  enum class State { kOk, kWarn, kMissing };
  std::string name;
  State state = State::kOk;
  std::string detail;
  std::string way_out;  // one command or sentence; "" when ok
};

Result<MachineFacts> read_machine(const std::string& data);
std::vector<Check> judge(const MachineFacts& facts);

// The first thing missing as an Error (kFailedPrecondition "prerequisite_missing"), all others in
// its fields; nothing missing: ok.
Status all_present(const std::vector<Check>& checks);

}  // namespace anychip::cli
