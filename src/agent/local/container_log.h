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
  // bytes_max: what conmon writes at most; a file of that size ends with a line of ours saying so.
  explicit ContainerLog(std::string path, int64_t bytes_max = 0)
      : path_(std::move(path)), bytes_max_(bytes_max) {}
  // Decoded bytes [offset, offset + bytes_max); shorter at the end, "" when there is nothing yet.
  Result<std::string> read(int64_t offset, int64_t bytes_max);

 private:
  struct Place {  // the start of a line in the file
    int64_t raw = 0, decoded = 0;
  };
  Place nearest_before(int64_t offset) const;
  void append_limit_note(int64_t raw_bytes, int64_t decoded_bytes, int64_t offset, int64_t bytes_max,
                         std::string& to) const;

  const std::string path_;
  const int64_t bytes_max_;
  std::mutex mutex_;
  std::vector<Place> index_{{}};
  Place last_;  // where the last read ended: the next one usually begins there
};

// The text of one line (without its line feed): prefix stripped, line feed added unless partial.
// A line without such a prefix is passed on as it is.
void append_decoded(std::string_view raw_line, std::string& to);

}  // namespace anychip::agent
