// Logs, metrics and events going out, with waiting for more.
#include <fmt/format.h>

#include "server/curve_rows.h"
#include "server/handlers.h"
#include "server/resolve.h"
#include "server/rows.h"

namespace anychip::server {
namespace {

constexpr int64_t kLogBytesDefault = 256 << 10, kLogBytesMost = 4 << 20;
constexpr int64_t kWaitMost_s = 30;
constexpr int64_t kOffsetMost = int64_t{1} << 52;

struct LegLog {
  LegId id;
  int64_t index = 0, bytes = 0;
  bool is_complete = false;
};

// A leg's log can be followed by the next one's only when nothing more can come of it.
Result<std::vector<LegLog>> logs_of(store::Db& db, const RunId& run) {
  TRY(const auto found,
      db.query("SELECT l.id, l.leg_index, COALESCE(s.stored_bytes, 0), COALESCE(i.is_closed, 1) OR "
               "COALESCE(i.are_streams_sent, 0) FROM legs l LEFT JOIN streams s ON s.leg_id = l.id "
               "AND s.stream = 'log' LEFT JOIN instances i ON i.id = l.instance_id "
               "WHERE l.run_id = ? ORDER BY l.leg_index",
               run));
  std::vector<LegLog> logs;
  for (const store::Row& row : found) {
    logs.push_back({LegId{row.text(0)}, row.integer(1), row.integer(2), row.integer(3) != 0});
  }
  return logs;
}

// Never ends inside a character.
void trim_to(std::string& text, int64_t bytes_max) {
  if (static_cast<int64_t>(text.size()) <= bytes_max) return;
  size_t end = static_cast<size_t>(bytes_max);
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end > 0 ? end : static_cast<size_t>(bytes_max));
}

Result<std::string> read_log(store::Db& db, const LegId& leg, int64_t offset, int64_t bytes_max) {
  TRY(const auto found,
      db.query("SELECT start, data FROM log_chunks WHERE leg_id = ? AND start >= (SELECT "
               "COALESCE(MAX(start), 0) FROM log_chunks WHERE leg_id = ? AND start <= ?) AND start "
               "< ? ORDER BY start",
               leg, leg, offset, offset + bytes_max));
  std::string text;
  for (const store::Row& row : found) {
    const std::string data = row.text(1);
    const int64_t skip = std::max<int64_t>(offset - row.integer(0), 0);
    if (skip < static_cast<int64_t>(data.size())) text += data.substr(static_cast<size_t>(skip));
  }
  trim_to(text, bytes_max);
  return text;
}

struct LogRead {
  std::string text;
  int64_t next = 0, leg_index = 0;
  bool is_at_end = false;  // nothing more is stored, and nothing more can come of these legs
};

// Offsets count over the legs given, one after the other.
Result<LogRead> read_logs(store::Db& db, const std::vector<LegLog>& logs, int64_t after,
                          int64_t bytes_max) {
  LogRead read;
  read.next = after;
  int64_t begin = 0;
  for (const LegLog& log : logs) {
    read.leg_index = log.index;
    if (after < begin + log.bytes) {
      TRY(read.text, read_log(db, log.id, after - begin, bytes_max));
      read.next = after + static_cast<int64_t>(read.text.size());
      return read;
    }
    begin += log.bytes;
    if (!log.is_complete) return read;
  }
  read.is_at_end = true;
  return read;
}

}  // namespace

Result<net::Outcome> get_logs(Call& call) {
  TRY(const int64_t after, query_int(call.request, "after", 0, 0, kOffsetMost));
  TRY(const int64_t leg, query_int(call.request, "leg", -1, 0, 1'000'000));
  TRY(const int64_t limit,
      query_int(call.request, "limit_bytes", kLogBytesDefault, 1, kLogBytesMost));
  TRY(const int64_t wait_s, query_int(call.request, "wait_s", 0, 0, kWaitMost_s));
  TRY(const fleet::Run run, get_run_row(call, call.parameters[0]));
  TRY(auto logs, logs_of(call.db, run.id));
  if (leg >= 0) std::erase_if(logs, [&](const LegLog& log) { return log.index != leg; });
  TRY(const LogRead read, read_logs(call.db, logs, after, limit));
  const bool is_over = leg >= 0 || fleet::is_ended(run.state);
  const bool has_ended = read.text.empty() && read.is_at_end && is_over;
  const net::Response answer = ok(json::object{{"offset", after},
                                               {"next_offset", read.next},
                                               {"text", read.text},
                                               {"leg_index", read.leg_index},
                                               {"ended", has_ended}});
  if (!read.text.empty() || has_ended || wait_s == 0 || call.is_last_try) return answer;
  return net::Waiting{seconds(wait_s), answer};
}

Result<net::Outcome> list_metrics(Call& call) {
  TRY(const int64_t after, query_int(call.request, "after_step", 0, 0, kOffsetMost));
  TRY(const int64_t leg, query_int(call.request, "leg", -1, 0, 1'000'000));
  TRY(const int64_t limit, query_int(call.request, "limit", 1000, 1, 100'000));
  TRY(const RunId run, find_run(call, call.parameters[0]));
  // One leg alone shows all it did; the curve shows what counts.
  const std::string only = leg >= 0 ? fmt::format("m.leg_index = {}", leg) : std::string(kOfCurve);
  TRY(const auto found,
      call.db.query("SELECT m.step, m.leg_index, m.loss, m.step_s, m.tokens_s, m.t, m.memory_bytes "
                    "FROM metrics m WHERE m.run_id = ? AND m.step > ? AND " +
                        only + " ORDER BY m.step LIMIT ?",
                    run, after, limit));
  json::array items;
  for (const store::Row& row : found) {
    items.push_back(json::object{{"step", row.integer(0)},
                                 {"leg_index", row.integer(1)},
                                 {"loss", row.is_null(2) ? json::value(nullptr) : row.real(2)},
                                 {"step_s", row.real(3)},
                                 {"tokens_s", row.real(4)},
                                 {"t", row.real(5)},
                                 {"memory_bytes", row.integer(6)}});
  }
  return ok(list_of(std::move(items)));
}

Result<net::Outcome> list_events(Call& call) {
  TRY(const int64_t after, query_int(call.request, "after", 0, 0, kOffsetMost));
  TRY(const int64_t wait_s, query_int(call.request, "wait_s", 0, 0, kWaitMost_s));
  TRY(const int64_t limit, query_int(call.request, "limit", 500, 1, 500));
  TRY(const fleet::Run run, get_run_row(call, call.parameters[0]));
  TRY(const auto found, call.db.query("SELECT seq, at, kind, message, data FROM events WHERE "
                                      "run_id = ? AND seq > ? ORDER BY seq LIMIT ?",
                                      run.id, after, limit));
  json::array items;
  for (const store::Row& row : found) {
    auto data = json::parse(row.text(4));
    items.push_back(json::object{{"seq", row.integer(0)},
                                 {"at", WallTime{row.integer(1)}.rfc3339()},
                                 {"kind", row.text(2)},
                                 {"message", row.text(3)},
                                 {"data", data ? std::move(*data) : json::value(json::object{})}});
  }
  const bool is_empty = items.empty();
  const net::Response answer = ok(list_of(std::move(items)));
  if (!is_empty || wait_s == 0 || call.is_last_try || fleet::is_ended(run.state)) return answer;
  return net::Waiting{seconds(wait_s), answer};
}

}  // namespace anychip::server
