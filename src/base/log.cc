#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

namespace anychip::log {
namespace {

std::atomic<Level> g_level{Level::kInfo};
std::atomic<const Clock*> g_clock{nullptr};

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarn: return "warn";
    case Level::kError: return "error";
  }
  return "error";
}

}  // namespace

void write(Level level, std::string_view event, json::object fields) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  const Clock* clock = g_clock.load(std::memory_order_acquire);
  json::object line;
  line["t"] = (clock != nullptr ? clock->wall_now() : RealClock{}.wall_now()).rfc3339();
  line["level"] = name_of(level);
  line["event"] = event;
  for (auto& [key, field] : fields) line[key] = std::move(field);
  const std::string text = json::serialize(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);  // one call = one line, also between threads
}

void set_level(Level level) { g_level.store(level, std::memory_order_relaxed); }
void set_clock(const Clock* clock) { g_clock.store(clock, std::memory_order_release); }

}  // namespace anychip::log
