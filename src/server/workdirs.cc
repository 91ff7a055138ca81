#include <fmt/format.h>

#include "base/hash.h"
#include "server/handlers.h"
#include "server/rows.h"

namespace anychip::server {
namespace {

constexpr size_t kDigestLength = 64;
constexpr size_t kWorkdirBytesMax = size_t{512} << 20;

}  // namespace

// The body is kept before the transaction that names it: a kill between leaves a file nobody names.
Result<std::string> store_workdir(Shared& shared, const net::Request& request) {
  if (request.body.empty()) {
    return fail(Code::kInvalidArgument, "workdir_empty", "the body must be a tar.zst archive");
  }
  if (request.body.size() > kWorkdirBytesMax) {
    return fail(Code::kInvalidArgument, "workdir_too_large", "a workdir has at most 512 MiB",
                "leave data out with .gitignore");
  }
  const std::string digest = sha256_hex(request.body);
  const std::string_view said = net::header(request.headers, "X-Content-Sha256");
  if (!said.empty() && said != digest) {
    return fail(Code::kInvalidArgument, "digest_mismatch",
                "the body is not what X-Content-Sha256 says; it may have been cut on the way",
                "send it again");
  }
  std::vector<std::string> files;
  if (shared.parts.workdirs != nullptr) {
    TRY(files, shared.parts.workdirs->list(request.body));
  }
  if (!shared.parts.blobs.has(digest)) TRY_VOID(shared.parts.blobs.put(digest, request.body));
  return digest + rows::to_json_text(files);
}

Result<net::Outcome> create_workdir(Call& call) {
  const std::string digest = call.before.substr(0, kDigestLength);
  TRY_VOID(
      call.db.execute("INSERT INTO workdirs(digest, project_id, bytes, files, created_at) "
                      "VALUES(?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                      digest, call.who.project, call.request.body.size(),
                      call.before.substr(kDigestLength), call.shared.now()));
  return ok(json::object{{"digest", digest}, {"bytes", call.request.body.size()}}, 201);
}

// For POST /v1/runs: the digest of the template's own folder, packed now if it never was.
Result<std::string> pack_template(Shared& shared, const net::Request& request) {
  const auto body = body_of(request);
  if (!body || shared.parts.workdirs == nullptr) return std::string();
  const std::string id = json::string_at(*body, "template");
  if (id.empty() || !json::object_at(*body, "workdir").empty()) return std::string();
  const auto found = shared.parts.catalog.template_by(id);
  if (!found || (*found)->workdir.empty()) return std::string();  // told with all other reasons
  TRY(const std::string digest, shared.parts.workdirs->digest_of(**found));
  TRY(const std::string bytes, shared.parts.blobs.get(digest));
  TRY(const auto files, shared.parts.workdirs->list(bytes));
  return digest + rows::to_json_text(files);
}

Result<net::Outcome> get_workdir(Call& call) {
  const std::string& digest = call.parameters[0];
  // An agent sees only what is placed on its node.
  TRY(const auto found,
      call.db.query_one("SELECT 1 FROM runs r JOIN instances i ON i.run_id = r.id "
                        "WHERE r.workdir_digest = ? AND i.node_id = ? AND i.is_closed = 0",
                        digest, call.who.node));
  if (!found) return fail(Code::kNotFound, "workdir_not_found", "no instance here needs it");
  TRY(std::string bytes, call.shared.parts.blobs.get(digest));
  return net::Response{200, {{"Content-Type", "application/zstd"}}, std::move(bytes)};
}

}  // namespace anychip::server
