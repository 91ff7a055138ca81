#include "base/failpoint.h"

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "base/check.h"

namespace anychip::failpoint {

std::atomic<bool> any_armed{false};

namespace {

struct Armed {
  std::string action;
  long sleep_ms = 0;
  long only_hit = 0;  // 0 = every hit
  long hits = 0;
};

std::mutex g_mutex;
std::map<std::string, Armed, std::less<>> g_armed;
std::set<std::string, std::less<>> g_recorded;
bool g_recording = false;

tl::unexpected<Error> malformed(std::string_view part) {
  return fail(Code::kInvalidArgument, "failpoint_malformed",
              fmt::format("'{}' is not name=kill|error|sleep:MS[@hit]", part));
}

Result<long> parse_count(std::string_view text, std::string_view part) {
  long value = 0;
  if (text.empty()) return malformed(part);
  for (char c : text) {
    if (c < '0' || c > '9' || value > 100'000'000) return malformed(part);
    value = value * 10 + (c - '0');
  }
  return value;
}

Result<std::pair<std::string, Armed>> parse_one(std::string_view part) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos || equals == 0) return malformed(part);
  Armed armed;
  std::string_view action = part.substr(equals + 1);
  if (const size_t at = action.find('@'); at != std::string_view::npos) {
    TRY(armed.only_hit, parse_count(action.substr(at + 1), part));
    action = action.substr(0, at);
  }
  if (action.starts_with("sleep:")) {
    TRY(armed.sleep_ms, parse_count(action.substr(6), part));
    action = "sleep";
  }
  if (action != "kill" && action != "error" && action != "sleep") return malformed(part);
  armed.action = action;
  return std::pair{std::string(part.substr(0, equals)), armed};
}

}  // namespace

Status hit(std::string_view name) {
  Armed acting;
  {
    const std::lock_guard lock(g_mutex);
    if (g_recording) g_recorded.emplace(name);
    const auto found = g_armed.find(name);
    if (found == g_armed.end()) return {};
    Armed& armed = found->second;
    armed.hits += 1;
    if (armed.only_hit != 0 && armed.hits != armed.only_hit) return {};
    acting = armed;
  }
  if (acting.action == "kill") {
    std::raise(SIGKILL);
  } else if (acting.action == "sleep") {
    const timespec wait{acting.sleep_ms / 1000, acting.sleep_ms % 1000 * 1'000'000};
    nanosleep(&wait, nullptr);
  } else {
    return fail(Code::kInternal, "failpoint", fmt::format("failpoint {} fired", name));
  }
  return {};
}

Status arm(std::string_view specification) {
  std::map<std::string, Armed, std::less<>> parsed;
  while (!specification.empty()) {
    const size_t comma = specification.find(',');
    TRY(auto one, parse_one(specification.substr(0, comma)));
    parsed.insert(std::move(one));
    specification = comma == std::string_view::npos ? "" : specification.substr(comma + 1);
  }
  const std::lock_guard lock(g_mutex);
  g_armed = std::move(parsed);
  any_armed.store(!g_armed.empty() || g_recording, std::memory_order_relaxed);
  return {};
}

void arm_from_environment() {
  const char* text = std::getenv("ANYCHIP_FAILPOINTS");
  if (text == nullptr) return;
  const Status armed = arm(text);
  CHECK_MSG(armed.has_value(), "ANYCHIP_FAILPOINTS is malformed");
}

void start_recording() {
  const std::lock_guard lock(g_mutex);
  g_recording = true;
  any_armed.store(true, std::memory_order_relaxed);
}

std::vector<std::string> recorded() {
  const std::lock_guard lock(g_mutex);
  return {g_recorded.begin(), g_recorded.end()};
}

}  // namespace anychip::failpoint
