// Logs and metrics coming in: bytes are appended only where they belong, so a chunk that comes
// twice, late or out of order changes nothing.
#include <fmt/format.h>

#include "base/failpoint.h"
#include "server/handlers.h"
#include "server/metrics.h"
#include "server/reconcile.h"
#include "server/rows.h"

namespace anychip::server {
namespace {

struct Stored {
  int64_t bytes = 0;
  std::string tail;  // of metrics: the line that is not whole yet
};

Result<Stored> stored_of(store::Db& db, const LegId& leg, const std::string& stream) {
  TRY(const auto found, db.query_one("SELECT stored_bytes, tail FROM streams WHERE leg_id = ? AND "
                                     "stream = ?",
                                     leg, stream));
  if (!found) return Stored{};
  return Stored{found->integer(0), found->text(1)};
}

Status save_stored(store::Db& db, const LegId& leg, const std::string& stream,
                   const Stored& stored) {
  return db.execute(
      "INSERT INTO streams(leg_id, stream, stored_bytes, tail) VALUES(?, ?, ?, ?) "
      "ON CONFLICT(leg_id, stream) DO UPDATE SET stored_bytes = "
      "excluded.stored_bytes, tail = excluded.tail",
      leg, stream, stored.bytes, stored.tail);
}

Status save_step(store::Db& db, const fleet::Leg& leg, const StepRow& row) {
  return db.execute(
      "INSERT INTO metrics(run_id, leg_index, step, loss, step_s, tokens_s, t, "
      "memory_bytes) VALUES(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(run_id, step, "
      "leg_index) DO UPDATE SET loss = excluded.loss, step_s = excluded.step_s, "
      "tokens_s = excluded.tokens_s, t = excluded.t, memory_bytes = "
      "excluded.memory_bytes",
      leg.run, leg.index, row.step, row.loss, row.step_s, row.tokens_s, row.t, row.memory_bytes);
}

Status append_metrics(store::Db& db, fleet::Leg& leg, Stored& stored, const std::string& data) {
  std::string text = stored.tail + data;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const auto row = read_metric_line(std::string_view(text).substr(begin, end - begin), leg);
    if (row) TRY_VOID(save_step(db, leg, *row));
    begin = end + 1;
  }
  constexpr size_t kTailMax = 1 << 20;  // a line that never ends is none
  stored.tail = text.size() - begin > kTailMax ? std::string() : text.substr(begin);
  return {};
}

Status append_log(store::Db& db, const fleet::Leg& leg, const Stored& stored,
                  const std::string& data) {
  return db.execute("INSERT INTO log_chunks(leg_id, start, data) VALUES(?, ?, ?)", leg.id,
                    stored.bytes, data);
}

// The offset to go on from; nothing for a leg this server, or this node, does not know.
Result<std::optional<int64_t>> take_chunk(Call& call, const json::object& chunk) {
  const LegId id{json::string_at(chunk, "leg_id")};
  const std::string stream = json::string_at(chunk, "stream");
  const std::string data = json::string_at(chunk, "data");
  if (stream != "log" && stream != "metrics") return std::nullopt;
  TRY(auto leg,
      rows::select_one<fleet::Leg>(
          call.db, "id = ? AND instance_id IN (SELECT id FROM instances WHERE node_id = ?)", id,
          call.who.node));
  if (!leg) return std::nullopt;
  TRY(Stored stored, stored_of(call.db, id, stream));
  if (json::int_at(chunk, "offset") != stored.bytes || data.empty()) {
    return std::optional(stored.bytes);
  }
  if (stream == "log") {
    TRY_VOID(append_log(call.db, *leg, stored, data));
  } else {
    TRY_VOID(append_metrics(call.db, *leg, stored, data));
    TRY_VOID(rows::save(call.db, *leg));
  }
  stored.bytes += static_cast<int64_t>(data.size());
  TRY_VOID(save_stored(call.db, id, stream, stored));
  if (stream == "metrics") TRY_VOID(change_run(call.db, call.shared, leg->run, {}));
  return std::optional(stored.bytes);
}

}  // namespace

Result<net::Outcome> take_streams(Call& call) {
  TRY(const json::object body, body_of(call.request));
  json::array acked;
  for (const json::value& item : json::array_at(body, "chunks")) {
    if (!item.is_object()) continue;
    const json::object& chunk = item.get_object();
    TRY(const auto offset, take_chunk(call, chunk));
    if (!offset) continue;
    acked.push_back(json::object{{"leg_id", json::string_at(chunk, "leg_id")},
                                 {"stream", json::string_at(chunk, "stream")},
                                 {"offset", *offset}});
  }
  FAILPOINT("server.streams.stored");
  return ok(json::object{{"acked", std::move(acked)}});
}

}  // namespace anychip::server
