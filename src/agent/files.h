// AgentFiles in a folder: node.json (0600), state.json, workdirs/DIGEST.tar.zst.
#pragma once

#include <string>

#include "agent/agent.h"

namespace anychip::agent {

class FolderFiles final : public AgentFiles {
 public:
  static Result<std::unique_ptr<FolderFiles>> create(std::string folder);

  Result<std::string> load_identity() override;
  Status save_identity(std::string_view json_text) override;
  Result<std::string> load_state() override;
  Status save_state(std::string_view json_text) override;
  bool has_workdir(const std::string& digest) override;
  Status save_workdir(const std::string& digest, std::string_view bytes) override;
  std::string workdir_path(const std::string& digest) override;

 private:
  explicit FolderFiles(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace anychip::agent
