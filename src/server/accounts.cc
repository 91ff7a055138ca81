#include "base/hash.h"
#include "server/auth.h"
#include "server/handlers.h"
#include "server/money.h"

namespace anychip::server {
namespace {

constexpr size_t kNameMax = 100;

json::object account_view(const AccountId& id, const std::string& name, const Funds& funds) {
  return {{"id", id.text},
          {"name", name},
          {"balance_micros", funds.balance().micros},
          {"credit_micros", funds.credit.micros},
          {"spent_micros", funds.spent.micros},
          {"currency", "CNY"}};
}

}  // namespace

Result<net::Outcome> create_account(Call& call) {
  TRY(const json::object body, body_of(call.request));
  TRY(const std::string name, json::get_string(body, "name"));
  if (name.empty() || name.size() > kNameMax) {
    return fail(Code::kInvalidArgument, "name_invalid", "a name has 1 to 100 bytes");
  }
  const Shared& shared = call.shared;
  const WallTime now = shared.now();
  const auto account = AccountId::make(now, shared.parts.random);
  const auto project = ProjectId::make(now, shared.parts.random);
  const std::string token = make_secret(shared.parts.random);
  const Money credit = shared.options.credit_at_creation;
  TRY_VOID(call.db.execute(
      "INSERT INTO accounts(id, name, credit_micros, created_at) VALUES(?, ?, ?, ?)", account, name,
      credit, now));
  TRY_VOID(call.db.execute("INSERT INTO projects(id, account_id, name) VALUES(?, ?, 'default')",
                           project, account));
  TRY_VOID(
      call.db.execute("INSERT INTO tokens(token_hash, account_id, project_id, created_at) "
                      "VALUES(?, ?, ?, ?)",
                      sha256_hex(token), account, project, now));
  return ok(json::object{{"account", account_view(account, name, {credit, {}, {}})},
                         {"project", json::object{{"id", project.text}, {"name", "default"}}},
                         {"token", token}},
            201);
}

Result<net::Outcome> get_account(Call& call) {
  TRY(const auto found,
      call.db.query_one("SELECT name FROM accounts WHERE id = ?", call.who.account));
  TRY(const Funds funds, funds_of(call.db, call.who.account));
  json::object view = account_view(call.who.account, found ? found->text(0) : "", funds);
  view["project_id"] = call.who.project.text;
  return ok(view);
}

Result<net::Outcome> get_health(Call&) { return ok(json::object{{"status", "ok"}}); }

Result<net::Outcome> get_ready(Call& call) {
  TRY(const auto nodes, call.db.query_one("SELECT COUNT(*) FROM nodes"));  // the database answers
  return ok(json::object{{"status", "ok"}, {"nodes", nodes->integer(0)}});
}

}  // namespace anychip::server
