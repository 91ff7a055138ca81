#include "pjrt/settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace anychip::pjrt {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool parse_count(std::string_view text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value > 0;
}

}  // namespace

bool Fault::parse(const std::string& text) {
  if (text.empty()) return true;
  const size_t colon = text.find(':');
  const size_t equals = text.find('=');
  if (colon == std::string::npos || equals == std::string::npos || colon > equals) return false;
  const std::string_view site = std::string_view(text).substr(0, colon);
  const std::string_view action = std::string_view(text).substr(equals + 1);
  if (!parse_count(std::string_view(text).substr(colon + 1, equals - colon - 1), &at_))
    return false;
  if (action != "error" && action != "abort") return false;
  action_ = action == "error" ? Action::kError : Action::kAbort;
  if (site == "compile") site_ = Site::kCompile;
  if (site == "execute") site_ = Site::kExecute;
  if (site == "to_device") site_ = Site::kToDevice;
  if (site == "to_host") site_ = Site::kToHost;
  return site_ != Site::kNone;
}

abi::Error* Fault::hit(Site site) {
  if (site != site_ || calls_.fetch_add(1, std::memory_order_relaxed) + 1 != at_) return nullptr;
  if (action_ == Action::kAbort) std::abort();  // asked for: the device dies with the process
  return make_error(abi::kInternal, "a fault was injected here (ANYCHIP_PJRT_FAULT)");
}

void Settings::read_environment() {
  real_path = from_environment("ANYCHIP_PJRT_REAL");
  stats_path = from_environment("ANYCHIP_PJRT_STATS");
  const std::string memory = from_environment("ANYCHIP_PJRT_MEMORY_BYTES");
  if (!memory.empty() && !parse_count(memory, &memory_bytes)) {
    problem = "ANYCHIP_PJRT_MEMORY_BYTES must be a whole number of bytes, not '" + memory + "'";
  }
  const std::string count = from_environment("ANYCHIP_PJRT_DEVICE_COUNT");
  if (!count.empty() && (!parse_count(count, &device_count) || device_count > 4096)) {
    problem = "ANYCHIP_PJRT_DEVICE_COUNT must be from 1 to 4096, not '" + count + "'";
  }
  const std::string fault_text = from_environment("ANYCHIP_PJRT_FAULT");
  if (!fault.parse(fault_text)) {
    problem = "ANYCHIP_PJRT_FAULT must look like execute:20=error, not '" + fault_text + "'";
  }
}

}  // namespace anychip::pjrt
