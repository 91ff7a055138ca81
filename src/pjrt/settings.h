// What the environment of the instance asks of the shim. Read once, when the plugin is loaded.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "pjrt/errors.h"

namespace anychip::pjrt {

// A fault asked for by a test: at the N-th call of a site, an error or the death of the process.
class Fault {
 public:
  enum class Site { kNone, kCompile, kExecute, kToDevice, kToHost };
  enum class Action { kError, kAbort };

  // "execute:20=error", "compile:1=abort"; sites: compile execute to_device to_host. "" = none.
  // False: not understood.
  bool parse(const std::string& text);
  // Counts a call of the site; an error when it is the one.
  abi::Error* hit(Site site);

 private:
  Site site_ = Site::kNone;
  Action action_ = Action::kError;
  int64_t at_ = 0;
  std::atomic<int64_t> calls_{0};
};

struct Settings {
  std::string real_path;     // ANYCHIP_PJRT_REAL
  std::string stats_path;    // ANYCHIP_PJRT_STATS: a JSON line is appended at exit
  int64_t memory_bytes = 0;  // ANYCHIP_PJRT_MEMORY_BYTES: limit per device; 0 = none
  int64_t device_count = 1;  // ANYCHIP_PJRT_DEVICE_COUNT: option cpu_device_count
  Fault fault;               // ANYCHIP_PJRT_FAULT
  std::string problem;       // one sentence when a value cannot be understood

  void read_environment();
};

}  // namespace anychip::pjrt
