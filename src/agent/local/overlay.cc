#include "agent/local/overlay.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

namespace anychip::agent {
namespace {

constexpr size_t kLayersMax = 64;  // "l63:l62:...": an option string holds 255 bytes

struct Answer {
  int error_number = 0;
  char step[200] = "";
};

// --- in the child: after fork() in a process with threads, so only plain system calls -------------

struct ChildInput {
  int user_namespace;
  const int* layers;
  size_t layers_count;
  int disk;
  const char* meeting_point;
  const char* lowerdir;  // "l2:l1:l0"
  int socket;
};

long configure(int context, unsigned command, const char* key, const char* text) {
  return syscall(SYS_fsconfig, context, command, key, text, 0);
}

int enter(const ChildInput& input, Answer& answer) {
  const auto failed = [&](const char* step) {
    answer.error_number = errno;
    std::snprintf(answer.step, sizeof answer.step, "%s", step);
    return -1;
  };
  if (setns(input.user_namespace, CLONE_NEWUSER) != 0) return failed("setns");
  if (syscall(SYS_setgroups, 0, nullptr) != 0) return failed("setgroups");
  if (syscall(SYS_setresgid, 0, 0, 0) != 0) return failed("setresgid");
  if (syscall(SYS_setresuid, 0, 0, 0) != 0) return failed("setresuid");
  if (unshare(CLONE_NEWNS) != 0) return failed("unshare");
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of ids has cleared it
  // A private tmpfs as the place where the layers' mounts get names; gone with this process.
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed("make private");
  if (mount("tmpfs", input.meeting_point, "tmpfs", 0, "mode=0755") != 0) return failed("mount tmpfs");
  if (chdir(input.meeting_point) != 0) return failed("chdir");
  return 0;
}

int place(int tree, const char* name, Answer& answer) {
  if (mkdir(name, 0755) == 0 &&
      syscall(SYS_move_mount, tree, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) == 0) {
    return 0;
  }
  answer.error_number = errno;
  std::snprintf(answer.step, sizeof answer.step, "place %s", name);
  return -1;
}

int mount_overlay(const ChildInput& input, Answer& answer) {
  const auto failed = [&](const char* step, int context) {
    answer.error_number = errno;
    char detail[120] = "";
    if (context >= 0) {  // the kernel's own words
      const ssize_t got = read(context, detail, sizeof detail - 1);
      detail[got > 0 ? got : 0] = 0;
    }
    std::snprintf(answer.step, sizeof answer.step, "%s %s", step, detail);
    return -1;
  };
  const int context = static_cast<int>(syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC));
  if (context < 0) return failed("fsopen overlay", -1);
  const struct {
    unsigned command;
    const char *key, *text;
  } settings[] = {{FSCONFIG_SET_STRING, "source", "anychip"},
                  {FSCONFIG_SET_STRING, "lowerdir", input.lowerdir},
                  {FSCONFIG_SET_STRING, "upperdir", "disk/upper"},
                  {FSCONFIG_SET_STRING, "workdir", "disk/work"},
                  {FSCONFIG_SET_FLAG, "userxattr", nullptr},
                  // A disk is cloned and stacked over other layers later: nothing in the upper
                  // layer may point into the lower ones.
                  {FSCONFIG_SET_STRING, "index", "off"},
                  {FSCONFIG_SET_STRING, "metacopy", "off"}};
  for (const auto& setting : settings) {
    if (configure(context, setting.command, setting.key, setting.text) != 0) {
      return failed(setting.key, context);
    }
  }
  if (configure(context, FSCONFIG_CMD_CREATE, nullptr, nullptr) != 0) return failed("create", context);
  const int made = static_cast<int>(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                                            MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID));
  return made >= 0 ? made : failed("fsmount", context);
}

void answer_with(int socket, const Answer& answer, int mount) {
  iovec data{const_cast<Answer*>(&answer), sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (mount >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &mount, sizeof mount);
  }
  (void)sendmsg(socket, &message, MSG_NOSIGNAL);
}

[[noreturn]] void child(const ChildInput& input, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  Answer answer;
  int mount = -1;
  bool is_placed = enter(input, answer) == 0 && place(input.disk, "disk", answer) == 0;
  for (size_t i = 0; is_placed && i < input.layers_count; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "l%zu", i);
    is_placed = place(input.layers[i], name, answer) == 0;
  }
  if (is_placed) mount = mount_overlay(input, answer);
  answer_with(input.socket, answer, mount);
  _exit(0);
}

// --- in the parent --------------------------------------------------------------------------------

Result<sys::Fd> receive(int socket) {
  Answer answer;
  iovec data{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got != static_cast<ssize_t>(sizeof answer)) {
    return fail(Code::kInternal, "overlay_failed", "the overlay's helper process ended early");
  }
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message);
      header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int mount = -1;
    std::memcpy(&mount, CMSG_DATA(header), sizeof mount);
    return sys::Fd(mount);
  }
  answer.step[sizeof answer.step - 1] = 0;
  return fail(Code::kInternal, "overlay_failed",
              fmt::format("overlay: {}: {}", answer.step, std::strerror(answer.error_number)),
              "the kernel must support overlay in user namespaces (5.11) and idmapped mounts (5.12; "
              "overlay on them 5.19)");
}

}  // namespace

Result<sys::Fd> make_overlay(const OverlayInput& input, const sys::Fd& user_namespace) {
  if (input.layers.empty() || input.layers.size() > kLayersMax) {
    return fail(Code::kInvalidArgument, "layers_invalid",
                fmt::format("an image has 1 to {} layers, this one {}", kLayersMax,
                            input.layers.size()));
  }
  std::string lowerdir;  // the topmost comes first
  std::vector<int> layers;
  for (size_t i = 0; i < input.layers.size(); ++i) {
    layers.push_back(input.layers[i].get());
    lowerdir = "l" + std::to_string(i) + (lowerdir.empty() ? "" : ":" + lowerdir);
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail_errno("socketpair", errno);
  }
  const sys::Fd ours(pair[0]);
  sys::Fd theirs(pair[1]);
  const ChildInput child_input{user_namespace.get(), layers.data(),   layers.size(),
                               input.disk.get(),     input.meeting_point.c_str(),
                               lowerdir.c_str(),     theirs.get()};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail_errno("fork", errno);
  if (pid == 0) child(child_input, parent);
  // A concurrent fork elsewhere may hold a copy of `theirs`: the child's answer, sent in any case,
  // ends the wait, not the end of the stream. A child that was killed answers nothing: shutdown does.
  const timeval patience{30, 0};
  setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  theirs.reset();
  auto mount = receive(ours.get());
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);  // its private mounts are gone with it
  return mount;
}

}  // namespace anychip::agent
