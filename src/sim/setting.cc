#include "sim/setting.h"

#include <cstdlib>
#include <filesystem>

#include "sys/files.h"

namespace anychip::sim {
namespace fs = std::filesystem;

Result<std::unique_ptr<Setting>> Setting::create(const std::string& root) {
  std::unique_ptr<Setting> setting(new Setting);
  // In memory where there is such a place: a kill of the server reopens the database each time.
  const fs::path base = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
  std::string pattern = (base / "anychip-sim-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return fail_errno("mkdtemp " + pattern, errno);
  setting->folder_ = pattern;
  // The simulation runs no image, so the one build output that an image carries may be anything.
  TRY_VOID(sys::make_folders(pattern + "/share/lib"));
  TRY_VOID(sys::write_file_atomic(pattern + "/share/lib/libanychip_pjrt.so", "simulated"));
  TRY(setting->catalog_, catalog::Catalog::load(root, pattern + "/share"));
  return setting;
}

Setting::~Setting() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Options Setting::options(uint64_t seed) const {
  Options options;
  options.seed = seed;
  options.catalog = &catalog_;
  options.folder = folder_;
  return options;
}

}  // namespace anychip::sim
