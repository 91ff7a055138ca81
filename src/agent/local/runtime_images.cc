// A file of its own: only the agent's process links the image store.
#include "agent/local/runtime_local.h"

namespace anychip::agent {

Status StoreImages::ensure(const std::string& image, const std::string& variant,
                           const std::string& digest) {
  return store_.ensure(image, variant, digest);
}

Result<std::vector<std::string>> StoreImages::layer_paths(const std::string& image,
                                                          const std::string& variant) {
  return store_.layer_paths(image, variant);
}

std::vector<std::pair<std::string, std::string>> StoreImages::environment(
    const std::string& image, const std::string& variant) {
  std::vector<std::pair<std::string, std::string>> variables;
  const auto known = catalog_.image(image);
  if (!known) return variables;
  for (const catalog::Variant& one : (*known)->variants) {
    if (one.id != variant) continue;
    for (const auto& [name, text] : one.environment) variables.emplace_back(name, text);
  }
  return variables;
}

std::vector<ImageSeen> StoreImages::seen() { return store_.seen(); }

}  // namespace anychip::agent
