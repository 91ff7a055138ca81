#include "agent/streams.h"

#include <algorithm>

#include "base/json.h"

namespace anychip::agent {
namespace {

constexpr int kUnknownMax = 3;

std::string_view name_of(Stream stream) { return stream == Stream::kLog ? "log" : "metrics"; }

// Bytes of the UTF-8 character that begins at `at`; 0 = none begins there (RFC 3629).
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return lead == 0 ? 0 : 1;
  size_t length = 0;
  if (lead >= 0xc2 && lead <= 0xdf) length = 2;
  else if (lead >= 0xe0 && lead <= 0xef) length = 3;
  else if (lead >= 0xf0 && lead <= 0xf4) length = 4;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(at + 1);
  if (lead == 0xe0 && second < 0xa0) return 0;
  if (lead == 0xed && second > 0x9f) return 0;
  if (lead == 0xf0 && second < 0x90) return 0;
  if (lead == 0xf4 && second > 0x8f) return 0;
  return length;
}

// Where a line over the limit is cut: never inside a character.
size_t cut_of(std::string_view text) {
  size_t cut = text.size();
  for (size_t back = 1; back <= 3 && back < text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > back) cut = text.size() - back;
    break;
  }
  return cut;
}

}  // namespace

std::string clean_utf8(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) text[at] = '?';
    at += std::max<size_t>(length, 1);
  }
  return text;
}

std::optional<std::string> StreamShipper::read_chunk(const Key& key, Cursor& cursor, bool has_ended,
                                                     int64_t bytes_max) {
  Result<std::string> read =
      runtime_.read_stream(key.first, key.second, cursor.offset, bytes_max);
  if (!read) {
    // The file is gone with its container: there is nothing left to ship.
    cursor.is_complete = has_ended && read.error().code == Code::kNotFound;
    cursor.not_before = clock_.mono_now() + seconds(1);
    return std::nullopt;
  }
  if (read->empty()) {
    cursor.is_complete = has_ended;
    return std::nullopt;
  }
  const bool is_full = static_cast<int64_t>(read->size()) >= bytes_max;
  const size_t line_end = read->rfind('\n');
  if (line_end != std::string::npos) read->resize(line_end + 1);
  else if (is_full) read->resize(cut_of(*read));
  else if (!has_ended) return std::nullopt;  // the rest of the line is still to come
  return clean_utf8(std::move(*read));
}

std::optional<std::string> StreamShipper::next_body(const Records& records,
                                                    const Inventory& inventory) {
  std::vector<Key> keys;
  for (const auto& [instance, record] : records.all()) {
    const bool has_run = record.is_started || record.is_removed;
    if (!has_run || record.leg_id.empty()) continue;
    keys.emplace_back(instance, Stream::kLog);
    keys.emplace_back(instance, Stream::kMetrics);
  }
  std::rotate(keys.begin(), std::upper_bound(keys.begin(), keys.end(), last_), keys.end());
  const MonoTime now = clock_.mono_now();
  json::array chunks;
  int64_t left = kRequestBytesMax;
  for (const Key& key : keys) {
    Cursor& cursor = cursors_[key];
    if (cursor.is_complete || now < cursor.not_before) continue;
    if (left < kChunkBytesMax) break;
    const Record& record = *records.find(key.first);
    const ContainerSeen* seen = find_container(inventory, key.first);
    const bool has_ended = seen == nullptr || seen->phase == ContainerPhase::kExited;
    const std::optional<std::string> data = read_chunk(key, cursor, has_ended, kChunkBytesMax);
    if (!data) continue;
    left -= static_cast<int64_t>(data->size());
    chunks.push_back(json::object{{"leg_id", record.leg_id},
                                  {"stream", name_of(key.second)},
                                  {"offset", cursor.offset},
                                  {"data", *data}});
    sent_.push_back({key, record.leg_id, cursor.offset, static_cast<int64_t>(data->size())});
    last_ = key;
  }
  if (chunks.empty()) return std::nullopt;
  return json::serialize(json::object{{"chunks", std::move(chunks)}});
}

void StreamShipper::on_answer(const std::string& body, const Records& records,
                              const Desired* desired) {
  std::map<std::pair<std::string, std::string>, int64_t> acked;
  if (const Result<json::value> root = json::parse(body); root && root->is_object()) {
    for (const json::value& item : json::array_at(root->get_object(), "acked")) {
      if (!item.is_object()) continue;
      const json::object& ack = item.get_object();
      acked[{json::string_at(ack, "leg_id"), json::string_at(ack, "stream")}] =
          json::int_at(ack, "offset");
    }
  }
  const MonoTime now = clock_.mono_now();
  for (const Sent& sent : sent_) {
    Cursor& cursor = cursors_[sent.key];
    const auto ack = acked.find({sent.leg_id, std::string(name_of(sent.key.second))});
    if (ack == acked.end() || ack->second < 0) {
      ++cursor.unknown_count;
      cursor.not_before = now + seconds(5);
      const bool is_wanted = desired == nullptr || desired->find(sent.key.first) != nullptr;
      cursor.is_complete = !is_wanted && cursor.unknown_count >= kUnknownMax;
      continue;
    }
    cursor.unknown_count = 0;
    if (ack->second == sent.offset) cursor.not_before = now + seconds(1);  // refused as it is
    cursor.offset = ack->second;
  }
  sent_.clear();
  retain(records);
}

bool StreamShipper::is_shipped(const InstanceId& instance) const {
  const auto log = cursors_.find({instance, Stream::kLog});
  const auto metrics = cursors_.find({instance, Stream::kMetrics});
  return log != cursors_.end() && metrics != cursors_.end() && log->second.is_complete &&
         metrics->second.is_complete;
}

void StreamShipper::retain(const Records& records) {
  std::erase_if(cursors_, [&](const auto& item) { return records.find(item.first.first) == nullptr; });
}

}  // namespace anychip::agent
