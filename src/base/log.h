// The log: one JSON line per event on stderr:
// {"t":"...Z","level":"info","event":"agent.enrolled",...}. Event names are module.verb; fields are
// flat. Secrets never become a field. Thread-safe.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/time.h"

namespace anychip::log {

enum class Level { kDebug, kInfo, kWarn, kError };

void write(Level level, std::string_view event, json::object fields = {});
inline void info(std::string_view event, json::object fields = {}) {
  write(Level::kInfo, event, std::move(fields));
}
inline void warn(std::string_view event, json::object fields = {}) {
  write(Level::kWarn, event, std::move(fields));
}
inline void error(std::string_view event, json::object fields = {}) {
  write(Level::kError, event, std::move(fields));
}
inline void debug(std::string_view event, json::object fields = {}) {
  write(Level::kDebug, event, std::move(fields));
}

// Lines below this level are dropped (default info). `clock` outlives the process's logging;
// nullptr = the real clock.
void set_level(Level level);
void set_clock(const Clock* clock);

}  // namespace anychip::log
