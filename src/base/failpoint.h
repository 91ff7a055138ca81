// FAILPOINT("server.switch.reserve"): a named place where tests stop the world. Always compiled in,
// one relaxed load when nothing is armed. Armed by ANYCHIP_FAILPOINTS="name=action[@hit],..." at
// process start or by arm(): `kill` (SIGKILL to itself), `error` (the macro returns an injected
// kInternal Error), `sleep:MS`. hit counts from 1; without @hit every hit acts.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anychip::failpoint {

extern std::atomic<bool> any_armed;
Status hit(std::string_view name);
Status arm(std::string_view specification);  // same grammar as the variable; replaces all
void arm_from_environment();
// Names that were passed at least once since arm_all_recording(), for coverage of the kill tests.
void start_recording();
std::vector<std::string> recorded();

}  // namespace anychip::failpoint

// Inside a function that returns Result<...>.
#define FAILPOINT(name)                                                               \
  do {                                                                                \
    if (::anychip::failpoint::any_armed.load(std::memory_order_relaxed)) [[unlikely]] \
      TRY_VOID(::anychip::failpoint::hit(name));                                      \
  } while (false)
// Where no error can be returned: `error` is ignored, `kill` and `sleep` act.
#define FAILPOINT_VOID(name)                                                          \
  do {                                                                                \
    if (::anychip::failpoint::any_armed.load(std::memory_order_relaxed)) [[unlikely]] \
      (void)::anychip::failpoint::hit(name);                                          \
  } while (false)
