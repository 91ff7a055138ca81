// Freezing a mounted file system for the moment of a snapshot. A frozen file system stops every
// writer, so the thaw must happen whatever becomes of us: a guard process thaws when this process
// dies, the destructor when it forgets.
#pragma once

#include <string>

#include "base/error.h"
#include "sys/files.h"

namespace anychip::sys {

class FrozenFileSystem {
 public:
  static Result<FrozenFileSystem> freeze(const std::string& mount_point);
  FrozenFileSystem(FrozenFileSystem&& other) noexcept;
  FrozenFileSystem& operator=(FrozenFileSystem&&) = delete;
  ~FrozenFileSystem();
  // An error when it was not frozen any more: what was copied meanwhile must not be trusted.
  Status thaw();

 private:
  FrozenFileSystem(Fd root, Fd guard_pipe, int guard_pid)
      : root_(std::move(root)), guard_pipe_(std::move(guard_pipe)), guard_pid_(guard_pid) {}
  void end_guard();
  Fd root_, guard_pipe_;
  int guard_pid_ = -1;
};

// true: it was frozen (left by a killed process) and is thawed now.
Result<bool> thaw_if_frozen(const std::string& mount_point);

}  // namespace anychip::sys
