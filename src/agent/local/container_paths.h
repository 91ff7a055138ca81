// Where everything of a node's containers lies. What must survive a reboot is under
// DATA/agent/instances/<id>; mount points and the OCI bundle are under /run, because the user
// namespace's root must be able to walk there (a data folder below a 0700 home cannot be walked).
#pragma once

#include <string>

#include "base/error.h"
#include "base/ids.h"

namespace anychip::agent {

struct InstancePaths {
  std::string folder;    // DATA/agent/instances/<id>
  std::string spec;      // spec.json: what was asked for, written before any effect
  std::string status;    // status.json: how far it is
  std::string log;       // conmon's log, k8s-file format
  std::string metrics;   // copy of metrics.jsonl, made when the disk is detached
  std::string control;   // folder: /run/anychip/control of the container
  std::string hosts;     // /etc/hosts of the container
  std::string run;       // RUN/<id>: mount points and bundle, gone after removal
  // Below `run`: a runc killed while it writes one leaves a temporary file that stops the next runc.
  std::string pid, conmon_pid;
  std::string rootfs, io, opt, bundle;
  std::string exit_file;  // written by conmon
  std::string volume(size_t index) const { return run + "/volume-" + std::to_string(index); }
};

struct NodePaths {
  std::string agent;      // DATA/agent
  std::string instances, exits, runc, devices;
  std::string label;      // "anychip-" + 12 hex of the data folder: cgroups and RUN carry it
  std::string run;        // <run_root>/<label>

  static NodePaths of(const std::string& data, const std::string& run_root);
  Status make() const;
  InstancePaths instance(const InstanceId& instance) const;
};

}  // namespace anychip::agent
