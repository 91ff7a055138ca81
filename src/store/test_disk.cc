#include "store/test_disk.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "base/check.h"

namespace anychip::store {
namespace {

constexpr size_t kSectorBytes = 512;

// SQLite gives szOsFile bytes: this, and behind it the real file.
struct ShimFile {
  sqlite3_file base;
  TestDisk* disk;
  std::string* path;  // owned; null for temporary files, which nobody expects back
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

ShimFile* shim(sqlite3_file* file) { return reinterpret_cast<ShimFile*>(file); }
sqlite3_file* real(sqlite3_file* file) { return shim(file)->real(); }

int close_file(sqlite3_file* file) {
  delete shim(file)->path;
  return real(file)->pMethods->xClose(real(file));
}
int read_file(sqlite3_file* file, void* to, int count, sqlite3_int64 offset) {
  return real(file)->pMethods->xRead(real(file), to, count, offset);
}
int write_file(sqlite3_file* file, const void* from, int count, sqlite3_int64 offset) {
  if (shim(file)->path != nullptr) {
    shim(file)->disk->written(*shim(file)->path, offset,
                              {static_cast<const char*>(from), static_cast<size_t>(count)});
  }
  return real(file)->pMethods->xWrite(real(file), from, count, offset);
}
int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  if (shim(file)->path != nullptr) shim(file)->disk->truncated(*shim(file)->path, size);
  return real(file)->pMethods->xTruncate(real(file), size);
}
// Not passed on: the image is what counts here, and the real disk need not be waited for.
int sync_file(sqlite3_file* file, int) {
  if (shim(file)->path != nullptr) shim(file)->disk->synced(*shim(file)->path);
  return SQLITE_OK;
}
int file_size(sqlite3_file* file, sqlite3_int64* size) {
  return real(file)->pMethods->xFileSize(real(file), size);
}
int lock_file(sqlite3_file* file, int level) {
  return real(file)->pMethods->xLock(real(file), level);
}
int unlock_file(sqlite3_file* file, int level) {
  return real(file)->pMethods->xUnlock(real(file), level);
}
int check_reserved(sqlite3_file* file, int* out) {
  return real(file)->pMethods->xCheckReservedLock(real(file), out);
}
int control(sqlite3_file* file, int operation, void* argument) {
  return real(file)->pMethods->xFileControl(real(file), operation, argument);
}
int sector_size(sqlite3_file*) { return static_cast<int>(kSectorBytes); }
int characteristics(sqlite3_file* file) {
  return real(file)->pMethods->xDeviceCharacteristics(real(file));
}
int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  return real(file)->pMethods->xShmMap(real(file), page, size, extend, out);
}
int shm_lock(sqlite3_file* file, int offset, int count, int flags) {
  return real(file)->pMethods->xShmLock(real(file), offset, count, flags);
}
void shm_barrier(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
int shm_unmap(sqlite3_file* file, int remove) {
  return real(file)->pMethods->xShmUnmap(real(file), remove);
}

const sqlite3_io_methods kMethods = {
    2,         close_file,  read_file,      write_file, truncate_file, sync_file,       file_size,
    lock_file, unlock_file, check_reserved, control,    sector_size,   characteristics, shm_map,
    shm_lock,  shm_barrier, shm_unmap,      nullptr,    nullptr};

TestDisk* disk_of(sqlite3_vfs* vfs) { return static_cast<TestDisk*>(vfs->pAppData); }

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  TestDisk* disk = disk_of(vfs);
  ShimFile* opened = shim(file);
  opened->base.pMethods = nullptr;
  opened->disk = disk;
  opened->path = nullptr;
  const int result = disk->real()->xOpen(disk->real(), name, opened->real(), flags, out_flags);
  if (result != SQLITE_OK) return result;
  opened->base.pMethods = &kMethods;
  if (name != nullptr) {
    opened->path = new std::string(name);
    disk->opened(name, opened->real());
  }
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs* vfs, const char* name, int sync_folder) {
  disk_of(vfs)->removed(name);
  return disk_of(vfs)->real()->xDelete(disk_of(vfs)->real(), name, sync_folder);
}

}  // namespace

TestDisk::TestDisk() : real_(sqlite3_vfs_find(nullptr)), shim_(*real_) {
  shim_.zName = "test-disk";
  shim_.szOsFile = static_cast<int>(sizeof(ShimFile)) + real_->szOsFile;
  shim_.pAppData = this;
  shim_.xOpen = open_file;
  shim_.xDelete = delete_file;
  CHECK(sqlite3_vfs_register(&shim_, 1) == SQLITE_OK);
}

TestDisk::~TestDisk() {
  CHECK(sqlite3_vfs_unregister(&shim_) == SQLITE_OK);
  CHECK(sqlite3_vfs_register(real_, 1) == SQLITE_OK);
}

void TestDisk::opened(const std::string& path, sqlite3_file* real_file) {
  const std::lock_guard lock(mutex_);
  if (images_.contains(path)) return;
  Image& image = images_[path];  // what was there before counts as durable
  sqlite3_int64 size = 0;
  CHECK(real_file->pMethods->xFileSize(real_file, &size) == SQLITE_OK);
  image.durable.resize(static_cast<size_t>(size));
  if (size > 0) {
    CHECK(real_file->pMethods->xRead(real_file, image.durable.data(), static_cast<int>(size), 0) ==
          SQLITE_OK);
  }
}

void TestDisk::written(const std::string& path, sqlite3_int64 offset, std::string bytes) {
  const std::lock_guard lock(mutex_);
  images_[path].pending.push_back({false, static_cast<size_t>(offset), std::move(bytes)});
}

void TestDisk::truncated(const std::string& path, sqlite3_int64 size) {
  const std::lock_guard lock(mutex_);
  images_[path].pending.push_back({true, static_cast<size_t>(size), {}});
}

void TestDisk::synced(const std::string& path) {
  const std::lock_guard lock(mutex_);
  Image& image = images_[path];
  for (const Change& change : image.pending) apply(image.durable, change);
  image.pending.clear();
}

void TestDisk::removed(const std::string& path) {
  const std::lock_guard lock(mutex_);
  images_.erase(path);
}

void TestDisk::apply(std::string& content, const Change& change) {
  if (change.is_truncation) {
    content.resize(change.offset);
    return;
  }
  const size_t end = change.offset + change.bytes.size();
  if (content.size() < end) content.resize(end);
  std::memcpy(content.data() + change.offset, change.bytes.data(), change.bytes.size());
}

void TestDisk::lose_power(const std::string& to_folder, Random& random) {
  std::map<std::string, Image> images;
  {
    const std::lock_guard lock(mutex_);
    images = images_;
  }
  // A disk in a hurry: mostly nothing, mostly everything or half of what was not synced.
  const uint32_t kept_percent = std::array<uint32_t, 3>{0, 50, 95}[random.below(3)];
  for (auto& [path, image] : images) {
    for (Change& change : image.pending) {
      if (!random.chance(kept_percent)) continue;
      const size_t sectors = change.bytes.size() / kSectorBytes;
      if (sectors > 1 && random.chance(20)) {  // torn: its beginning only
        change.bytes.resize(random.below(sectors) * kSectorBytes);
      }
      apply(image.durable, change);
    }
    const std::string name = std::filesystem::path(path).filename().string();
    std::ofstream file(to_folder + "/" + name, std::ios::binary);
    file.write(image.durable.data(), static_cast<std::streamsize>(image.durable.size()));
    CHECK(file.good());
  }
}

}  // namespace anychip::store
