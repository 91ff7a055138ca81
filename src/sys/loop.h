// Loop devices by ioctl. Always direct I/O and 4096-byte blocks: with 512-byte sectors original and
// clone both fail after the first FICLONE on a pool of 4096-byte sectors.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "sys/files.h"

namespace anychip::sys {

struct LoopDevice {
  std::string path;          // /dev/loop3
  std::string backing_file;  // as the kernel names it; " (deleted)" cut off
  bool is_deleted = false;
  bool is_direct_io = false;
};
Result<std::vector<LoopDevice>> loop_devices();
Result<std::vector<LoopDevice>> loops_of(const std::string& backing_file);

// is_autoclear: the device frees itself at its last close, so a kill before the mount leaves none.
// Keep the descriptor `holder` open until it is mounted.
struct AttachedLoop {
  std::string path;
  Fd holder;
};
Result<AttachedLoop> attach_loop(const std::string& backing_file);
// Waits until no loop device has this backing file; false: one still has after `patience`.
Result<bool> wait_loop_free(const std::string& backing_file, Duration patience);
Status detach_loop(const std::string& device);  // LOOP_CLR_FD; free already = done

}  // namespace anychip::sys
