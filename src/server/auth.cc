#include "server/auth.h"

#include <array>

#include "base/hash.h"

namespace anychip::server {
namespace {

std::string_view bearer_of(const net::Request& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view text = net::header(request.headers, "Authorization");
  return text.starts_with(kScheme) ? text.substr(kScheme.size()) : std::string_view{};
}

tl::unexpected<Error> token_invalid() {
  return fail(Code::kUnauthenticated, "token_invalid", "the token is not valid here",
              "use the token that was given when the account was made (client.json)");
}

std::string scope_of(const Principal& who) { return who.is_admin ? "admin" : who.project.text; }

std::string request_hash(const net::Request& request) {
  return sha256_hex(request.method + " " + request.target + "\n" + request.body);
}

}  // namespace

std::string make_secret(Random& random) {
  std::array<uint8_t, 32> bytes{};
  random.fill(bytes);
  return to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<Principal> authenticate(store::Db& db, const Shared& shared, const net::Request& request,
                               Access access) {
  if (access == Access::kPublic) return Principal{};
  const std::string_view token = bearer_of(request);
  if (token.empty()) {
    return fail(Code::kUnauthenticated, "token_missing", "this needs a token",
                "send 'Authorization: Bearer TOKEN'");
  }
  Principal who;
  who.is_admin = !shared.options.admin_token.empty() &&
                 equal_in_constant_time(token, shared.options.admin_token);
  if (access == Access::kAdmin) {
    if (!who.is_admin) return token_invalid();
    return who;
  }
  if (access == Access::kAgent) {
    TRY(const auto node,
        db.query_one("SELECT id FROM nodes WHERE key_hash = ?", sha256_hex(token)));
    if (!node) return token_invalid();
    return Principal{{}, {}, NodeId{node->text(0)}, false};
  }
  if (access == Access::kAccountOrAdmin && who.is_admin) return who;
  TRY(const auto found,
      db.query_one("SELECT account_id, project_id FROM tokens WHERE token_hash = ?",
                   sha256_hex(token)));
  if (!found) return token_invalid();
  return Principal{AccountId{found->text(0)}, ProjectId{found->text(1)}, {}, false};
}

Result<std::optional<net::Response>> recall(store::Db& db, const Principal& who,
                                            const net::Request& request) {
  const std::string_view key = net::header(request.headers, "Idempotency-Key");
  if (key.empty()) return std::nullopt;
  if (key.size() > 200) {
    return fail(Code::kInvalidArgument, "idempotency_key_invalid",
                "an Idempotency-Key has at most 200 characters");
  }
  TRY(const auto found,
      db.query_one("SELECT request_hash, status, body FROM idempotency WHERE scope = ? AND "
                   "idempotency_key = ?",
                   scope_of(who), key));
  if (!found) return std::nullopt;
  if (found->text(0) != request_hash(request)) {
    return fail(Code::kInvalidArgument, "idempotency_key_reused",
                "this Idempotency-Key was used for another request", "take a new key");
  }
  return net::Response{
      static_cast<int>(found->integer(1)), {{"Content-Type", "application/json"}}, found->text(2)};
}

Status remember(store::Db& db, const Shared& shared, const Principal& who,
                const net::Request& request, const net::Response& response) {
  const std::string_view key = net::header(request.headers, "Idempotency-Key");
  if (key.empty() || response.status >= 300) return {};  // a refusal may be tried again
  TRY_VOID(db.execute("DELETE FROM idempotency WHERE created_at < ?", shared.now() - hours(48)));
  return db.execute(
      "INSERT INTO idempotency(scope, idempotency_key, request_hash, status, body, "
      "created_at) VALUES(?, ?, ?, ?, ?, ?)",
      scope_of(who), key, request_hash(request), response.status, response.body, shared.now());
}

}  // namespace anychip::server
