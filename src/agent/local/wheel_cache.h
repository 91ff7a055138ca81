// Wheels on this node, found by hash. Missing ones are fetched by the node's own pip configuration
// (index, mirrors, local folders, proxy: whatever its administrator set); one at a time, so a kill
// loses at most one.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "agent/local/requirements.h"
#include "base/error.h"

namespace anychip::agent {

class WheelCache {
 public:
  explicit WheelCache(std::string folder) : folder_(std::move(folder)) {}

  // The path of a wheel with one of the pin's hashes; "" when the pin's marker rules it out here.
  // Errors: wheel_hash_mismatch, wheel_unavailable, disk_full, pip_missing; each names the wheel.
  Result<std::string> ensure(const Pin& pin, const std::string& python_version,
                             const std::atomic<bool>& cancel,
                             const std::function<void(const std::string& text)>& report);

 private:
  Result<std::string> find(const Pin& pin, const std::string& folder) const;
  Result<std::string> fetch(const Pin& pin, const std::string& python_version,
                            const std::string& work, const std::atomic<bool>& cancel,
                            const std::function<void(const std::string& text)>& report);
  std::string folder_;
};

Result<std::string> sha256_of_file(const std::string& path);
Result<int64_t> content_bytes_of_wheel(const std::string& path);  // unpacked size

}  // namespace anychip::agent
