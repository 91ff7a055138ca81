#include "sys/loop.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <time.h>

#include <cerrno>

#include <fmt/format.h>

#include "sys/paths.h"

namespace anychip::sys {
namespace {
constexpr int kTriesMax = 64;  // other processes take free numbers too
constexpr std::string_view kDeleted = " (deleted)";
}  // namespace

Result<std::vector<LoopDevice>> loop_devices() {
  TRY(auto names, list_folder("/sys/block"));
  std::vector<LoopDevice> devices;
  for (const std::string& name : names) {
    if (!name.starts_with("loop")) continue;
    const std::string folder = "/sys/block/" + name + "/loop/";
    auto backing = read_file(folder + "backing_file");
    if (!backing) continue;  // not in use (any more)
    while (!backing->empty() && backing->back() == '\n') backing->pop_back();
    LoopDevice device;
    device.path = "/dev/" + name;
    device.is_deleted = backing->ends_with(kDeleted);
    device.backing_file =
        device.is_deleted ? backing->substr(0, backing->size() - kDeleted.size()) : *backing;
    const auto direct = read_file(folder + "dio");
    device.is_direct_io = direct && direct->starts_with("1");
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::vector<LoopDevice>> loops_of(const std::string& backing_file) {
  TRY(auto devices, loop_devices());
  std::erase_if(devices,
                [&](const LoopDevice& device) { return device.backing_file != backing_file; });
  return devices;
}

Result<AttachedLoop> attach_loop(const std::string& backing_file) {
  TRY(auto backing, open_file(backing_file, O_RDWR));
  auto control = open_file("/dev/loop-control", O_RDWR);
  if (!control) {
    return fail(Code::kFailedPrecondition, "loop_missing",
                "this machine offers no loop devices (/dev/loop-control)",
                "run as root on a kernel with the loop driver");
  }
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    const int number = ::ioctl(control->get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno("find a free loop device", errno);
    std::string path = fmt::format("/dev/loop{}", number);
    TRY(auto device, open_file(path, O_RDWR));
    loop_config config{};
    config.fd = static_cast<uint32_t>(backing.get());
    config.block_size = 4096;
    config.info.lo_flags = LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR;
    if (::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0)
      return AttachedLoop{std::move(path), std::move(device)};
    if (errno != EBUSY) return fail_errno("attach " + backing_file + " to " + path, errno);
  }
  return fail(Code::kResourceExhausted, "loop_exhausted",
              "no loop device could be had for " + backing_file);
}

Result<bool> wait_loop_free(const std::string& backing_file, Duration patience) {
  for (int64_t waited_ms = 0;; waited_ms += 5) {
    TRY(auto devices, loops_of(backing_file));
    if (devices.empty()) return true;
    if (waited_ms >= patience.ms()) return false;
    const timespec wait{0, 5'000'000};
    ::nanosleep(&wait, nullptr);
  }
}

Status detach_loop(const std::string& device) {
  TRY(auto fd, open_file(device, O_RDONLY));
  if (::ioctl(fd.get(), LOOP_CLR_FD) != 0 && errno != ENXIO)
    return fail_errno("free " + device, errno);
  return {};
}

}  // namespace anychip::sys
