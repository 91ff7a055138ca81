#include "server/core.h"

#include <atomic>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "server/auth.h"
#include "server/reconcile.h"
#include "server/shared.h"

namespace anychip::server {
namespace {

struct Match {
  const Route* route = nullptr;
  std::vector<std::string> parameters;
};

std::string_view take_segment(std::string_view& path) {
  const size_t slash = path.find('/', 1);
  const std::string_view segment = path.substr(0, slash);
  path = slash == std::string_view::npos ? "" : path.substr(slash);
  return segment;
}

std::optional<std::vector<std::string>> match_path(std::string_view pattern,
                                                   std::string_view path) {
  std::vector<std::string> parameters;
  while (!pattern.empty() && !path.empty()) {
    const std::string_view wanted = take_segment(pattern), got = take_segment(path);
    if (wanted.starts_with("/{")) {
      if (got.size() < 2) return std::nullopt;
      parameters.emplace_back(got.substr(1));
    } else if (wanted != got) {
      return std::nullopt;
    }
  }
  if (!pattern.empty() || !path.empty()) return std::nullopt;
  return parameters;
}

Result<Match> find_route(const net::Request& request) {
  std::string allowed;
  for (const Route& route : routes()) {
    auto parameters = match_path(route.path, request.path());
    if (!parameters) continue;
    if (route.method == request.method) return Match{&route, std::move(*parameters)};
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (!allowed.empty()) {
    return fail(Code::kInvalidArgument, "method_not_allowed",
                fmt::format("{} is not possible here", request.method), "possible: " + allowed);
  }
  return fail(Code::kNotFound, "route_not_found",
              fmt::format("there is no {} {}", request.method, request.path()),
              "see api/openapi.yaml");
}

// One request on its way: kept alive by the closures that carry it.
struct Errand {
  net::Request request;
  bool is_last_try = false;
  net::Done done;
  Match match;
  std::string request_id;
  std::string before;

  void answer(net::Outcome outcome) {
    if (auto* response = std::get_if<net::Response>(&outcome)) {
      response->headers.emplace_back("X-Request-Id", request_id);
    }
    done(std::move(outcome));
  }
  void refuse(const Error& error) {
    if (http_status_of(error.code) >= 500 && error.code != Code::kResourceExhausted) {
      log::error("server.request_failed", {{"request_id", request_id},
                                           {"method", request.method},
                                           {"path", std::string(request.path())},
                                           {"error", error.to_string()}});
    }
    // What broke inside is for the log; the caller gets the number to look it up by.
    const bool is_ours = error.code == Code::kInternal || error.code == Code::kUnknown ||
                         error.code == Code::kDataLoss;
    answer(problem(is_ours ? Error{Code::kInternal, "internal", "the server failed on this request",
                                   "its log has the cause under request " + request_id, {}}
                           : error,
                   request_id));
  }
};
using ErrandPtr = std::shared_ptr<Errand>;

class CoreImpl final : public Core {
 public:
  CoreImpl(CoreParts parts, CoreOptions options)
      : shared_{parts, std::move(options), parts.clock.wall_now(), parts.clock.mono_now()} {
    shared_.options.limits.stop_grace = shared_.options.checkpoint_grace;
  }

  void handle(net::Request request, bool is_last_try, net::Done done) override {
    auto errand = std::make_shared<Errand>();
    errand->request = std::move(request);
    errand->is_last_try = is_last_try;
    errand->done = std::move(done);
    errand->request_id = fmt::format("req_{:x}_{:x}", shared_.started_at.us, ++requests_);
    auto match = find_route(errand->request);
    if (!match) return errand->refuse(match.error());
    errand->match = std::move(*match);
    if (errand->match.route->before != nullptr) return prepare(errand);
    start(errand);
  }

  void tick() override {
    if (is_ticking_.exchange(true)) return;
    shared_.parts.store.submit(
        [this](store::Db& db) -> Result<std::function<void()>> {
          FAILPOINT("server.tick");
          TRY_VOID(reconcile_all(db, shared_));
          return std::function<void()>([this] { is_ticking_.store(false); });
        },
        [this](const Error& error) {
          log::error("server.tick_failed", {{"error", error.to_string()}});
          is_ticking_.store(false);
        });
  }

 private:
  // Authenticates first: nobody unknown makes the server pack or keep files.
  void prepare(const ErrandPtr& errand) {
    shared_.parts.store.read([this, errand](store::Db& db) {
      const auto who = authenticate(db, shared_, errand->request, errand->match.route->access);
      if (!who) return errand->refuse(who.error());
      auto found = errand->match.route->before(shared_, errand->request);
      if (!found) return errand->refuse(found.error());
      errand->before = std::move(*found);
      start(errand);
    });
  }

  void start(const ErrandPtr& errand) {
    if (errand->match.route->mode == Mode::kRead) {
      shared_.parts.store.read([this, errand](store::Db& db) {
        auto outcome = run(*errand, db);
        if (!outcome) return errand->refuse(outcome.error());
        errand->answer(std::move(*outcome));
      });
      return;
    }
    shared_.parts.store.submit(
        [this, errand](store::Db& db) -> Result<std::function<void()>> {
          TRY(net::Outcome outcome, run(*errand, db));
          FAILPOINT("server.request.before_commit");
          return std::function<void()>([errand, outcome = std::move(outcome)]() mutable {
            FAILPOINT_VOID("server.request.committed");
            errand->answer(std::move(outcome));
          });
        },
        [errand](const Error& error) { errand->refuse(error); });
  }

  Result<net::Outcome> run(const Errand& errand, store::Db& db) {
    const Route& route = *errand.match.route;
    TRY(const Principal who, authenticate(db, shared_, errand.request, route.access));
    if (route.takes_idempotency_key) {
      TRY(const auto known, recall(db, who, errand.request));
      if (known) return net::Outcome(*known);
    }
    Call call{shared_,       errand.request,   db, who, errand.match.parameters, errand.is_last_try,
              errand.before, errand.request_id};
    TRY(net::Outcome outcome, route.handle(call));
    const auto* response = std::get_if<net::Response>(&outcome);
    if (route.takes_idempotency_key && response != nullptr) {
      TRY_VOID(remember(db, shared_, who, errand.request, *response));
    }
    return outcome;
  }

  Shared shared_;
  std::atomic<uint64_t> requests_{0};
  std::atomic<bool> is_ticking_{false};
};

}  // namespace

std::unique_ptr<Core> Core::create(CoreParts parts, CoreOptions options) {
  return std::make_unique<CoreImpl>(parts, std::move(options));
}

}  // namespace anychip::server
