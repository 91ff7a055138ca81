#include "agent/local/container_log.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "sys/files.h"

namespace anychip::agent {
namespace {

constexpr int64_t kIndexStepBytes = 64 << 10;
constexpr int64_t kBlockBytes = 256 << 10;
constexpr size_t kTimeBytesMax = 48;
constexpr std::string_view kStreams[] = {"stdout ", "stderr "};

}  // namespace

void append_decoded(std::string_view raw_line, std::string& to) {
  const size_t space = raw_line.substr(0, kTimeBytesMax).find(' ');
  if (space != std::string_view::npos) {
    const std::string_view rest = raw_line.substr(space + 1);
    for (const std::string_view stream : kStreams) {
      if (!rest.starts_with(stream)) continue;
      const std::string_view tagged = rest.substr(stream.size());
      if (tagged.size() < 2 || (tagged[0] != 'F' && tagged[0] != 'P') || tagged[1] != ' ') break;
      to += tagged.substr(2);
      if (tagged[0] == 'F') to += '\n';
      return;
    }
  }
  to += raw_line;
  to += '\n';
}

ContainerLog::Place ContainerLog::nearest_before(int64_t offset) const {
  const auto after = std::upper_bound(
      index_.begin(), index_.end(), offset,
      [](int64_t wanted, const Place& place) { return wanted < place.decoded; });
  Place place = *(after - 1);  // index_ begins with {0, 0}
  if (last_.decoded <= offset && last_.decoded > place.decoded) place = last_;
  return place;
}

// Behind the last line of a full log, at decoded_bytes.
void ContainerLog::append_limit_note(int64_t raw_bytes, int64_t decoded_bytes, int64_t offset,
                                     int64_t bytes_max, std::string& to) const {
  if (bytes_max_ == 0 || raw_bytes < bytes_max_) return;
  const std::string note = fmt::format(
      "[anychip] the log has reached its limit of {} MiB; later output was dropped\n", bytes_max_ >> 20);
  const int64_t skip = std::max<int64_t>(offset - decoded_bytes, 0);
  const int64_t room = bytes_max - static_cast<int64_t>(to.size());
  if (skip >= static_cast<int64_t>(note.size()) || room <= 0) return;
  to.append(note, static_cast<size_t>(skip), static_cast<size_t>(room));
}

Result<std::string> ContainerLog::read(int64_t offset, int64_t bytes_max) {
  if (offset < 0 || bytes_max < 0) {
    return fail(Code::kInvalidArgument, "offset_invalid", "a log offset is not negative");
  }
  auto file = sys::open_file(path_, O_RDONLY);
  if (!file) {
    if (file.error().code == Code::kNotFound) return std::string{};
    return tl::unexpected(std::move(file).error());
  }
  const std::lock_guard lock(mutex_);
  Place place = nearest_before(offset);
  std::string collected, block, line;
  int64_t read_at = place.raw;
  bool is_at_end = false;
  while (static_cast<int64_t>(collected.size()) < bytes_max) {
    TRY(const std::string more, sys::read_range(file->get(), read_at, kBlockBytes));
    is_at_end = more.empty();
    if (is_at_end) break;
    read_at += static_cast<int64_t>(more.size());
    block += more;
    size_t begin = 0;
    while (static_cast<int64_t>(collected.size()) < bytes_max) {
      const void* end = std::memchr(block.data() + begin, '\n', block.size() - begin);
      if (end == nullptr) break;
      const size_t length = static_cast<size_t>(static_cast<const char*>(end) - block.data()) - begin;
      line.clear();
      append_decoded({block.data() + begin, length}, line);
      const int64_t line_bytes = static_cast<int64_t>(line.size());
      if (place.decoded + line_bytes > offset) {
        const int64_t skip = std::max<int64_t>(offset - place.decoded, 0);
        const int64_t room = bytes_max - static_cast<int64_t>(collected.size());
        const int64_t take = std::min(line_bytes - skip, room);
        collected.append(line, static_cast<size_t>(skip), static_cast<size_t>(take));
        if (take < line_bytes - skip) {  // the next read begins in the middle of this line
          last_ = place;
          return collected;
        }
      }
      begin += length + 1;
      place.raw += static_cast<int64_t>(length) + 1;
      place.decoded += line_bytes;
      if (place.decoded >= index_.back().decoded + kIndexStepBytes) index_.push_back(place);
    }
    block.erase(0, begin);
  }
  last_ = place;
  if (is_at_end) append_limit_note(place.raw, place.decoded, offset, bytes_max, collected);
  return collected;
}

}  // namespace anychip::agent
