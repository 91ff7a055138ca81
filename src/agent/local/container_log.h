// conmon's log decoded: every line of the file is "TIME stdout|stderr F|P TEXT"; our bytes are the
// TEXTs, with a line feed after each F, in the order they came. Offsets count decoded bytes. Nothing
// is written: a sparse index in memory (one entry per 64 KiB) makes any offset a short read.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"

namespace anychip::agent {

class ContainerLog {
 public:
  explicit ContainerLog(std::string path) : path_(std::move(path)) {}
  // Decoded bytes [offset, offset + bytes_max); shorter at the end, "" when there is nothing yet.
  Result<std::string> read(int64_t offset, int64_t bytes_max);

 private:
  struct Place {  // the start of a line in the file
    int64_t raw = 0, decoded = 0;
  };
  Place nearest_before(int64_t offset) const;

  const std::string path_;
  std::mutex mutex_;
  std::vector<Place> index_{{}};
  Place last_;  // where the last read ended: the next one usually begins there
};

// The text of one line (without its line feed): prefix stripped, line feed added unless partial.
// A line without such a prefix is passed on as it is.
void append_decoded(std::string_view raw_line, std::string& to);

}  // namespace anychip::agent
