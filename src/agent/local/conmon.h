// runc under conmon. conmon makes the container (`runc create`), stays as its parent in a session of
// its own, writes its log and, at the end, its exit code; the agent may come and go meanwhile.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "sys/files.h"

namespace anychip::agent {

struct ConmonSpec {
  std::string id;
  std::string bundle;
  std::string log_path, exit_folder, pid_file, conmon_pid_file;
  int64_t log_bytes_max = 0;           // of the file; later output is dropped by conmon
  const std::vector<sys::Fd>& cgroup;  // open cgroup.procs files it enters before anything else
};

class Runc {
 public:
  explicit Runc(std::string root) : root_(std::move(root)) {}

  // Returns the container's init once it waits for start(). A command that is not in the image is
  // "command_not_found"; other refusals of runc "container_create_failed" with its words.
  Result<pid_t> create(const ConmonSpec& spec) const;
  Status start(const std::string& id) const;
  Status remove(const std::string& id) const;  // delete --force; absent = done
  Result<std::string> state(const std::string& id) const;  // "created running stopped"; kNotFound
  Result<std::vector<std::string>> list() const;

 private:
  std::string root_;
};

}  // namespace anychip::agent
