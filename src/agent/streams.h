// Ships logs and metrics lines: reads them where the server's acks say it should go on, so nothing
// is held in memory while the server is away, and nothing need be remembered over a restart.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/converge.h"

namespace anychip::agent {

constexpr int64_t kChunkBytesMax = 64 << 10;     // also the longest line that is not cut
constexpr int64_t kRequestBytesMax = 128 << 10;  // of data; JSON may make 6 bytes of one

class StreamShipper {
 public:
  StreamShipper(Runtime& runtime, const Clock& clock) : runtime_(runtime), clock_(clock) {}

  // The body of the next request; nullopt when there is nothing to send. One at a time.
  std::optional<std::string> next_body(const Records& records, const Inventory& inventory);
  void on_answer(const std::string& body, const Records& records, const Desired* desired);
  void on_failure() { sent_.clear(); }
  bool is_shipped(const InstanceId& instance) const;
  void retain(const Records& records);

 private:
  using Key = std::pair<InstanceId, Stream>;
  struct Cursor {
    int64_t offset = 0;
    bool is_complete = false;
    int unknown_count = 0;  // the server did not know the leg
    MonoTime not_before;
  };
  struct Sent {
    Key key;
    std::string leg_id;
    int64_t offset = 0, bytes = 0;
  };
  std::optional<std::string> read_chunk(const Key& key, Cursor& cursor, bool has_ended,
                                        int64_t bytes_max);

  Runtime& runtime_;
  const Clock& clock_;
  std::map<Key, Cursor> cursors_;
  std::vector<Sent> sent_;
  Key last_;  // the next request begins after it, so that one loud container starves nobody
};

// Each byte that is not part of valid UTF-8, and NUL, becomes one '?': the length stays the same.
std::string clean_utf8(std::string text);

}  // namespace anychip::agent
