#include "server/handlers.h"
#include "server/shared.h"

namespace anychip::server {

const std::vector<Route>& routes() {
  constexpr Access kPublic = Access::kPublic, kAccount = Access::kAccount, kAgent = Access::kAgent;
  constexpr Mode kRead = Mode::kRead, kWrite = Mode::kWrite;
  static const std::vector<Route> table = {
      {"GET", "/healthz", kPublic, kRead, get_health},
      {"GET", "/readyz", kPublic, kRead, get_ready},
      // No idempotency key: the answer holds a token, which is never stored.
      {"POST", "/v1/accounts", Access::kAdmin, kWrite, create_account},
      {"GET", "/v1/account", kAccount, kRead, get_account},
      {"GET", "/v1/chips", kPublic, kRead, list_chips},
      {"GET", "/v1/images", kPublic, kRead, list_images},
      {"GET", "/v1/templates", kPublic, kRead, list_templates},
      {"GET", "/v1/offers", kPublic, kRead, list_offers},
      {"GET", "/v1/nodes", Access::kAccountOrAdmin, kRead, list_nodes},
      {"POST", "/v1/workdirs", kAccount, kWrite, create_workdir, false, store_workdir},
      {"POST", "/v1/runs", kAccount, kWrite, create_run, true, pack_template},
      {"GET", "/v1/runs", kAccount, kRead, list_runs},
      {"GET", "/v1/runs/{run}", kAccount, kRead, get_run},
      {"DELETE", "/v1/runs/{run}", kAccount, kWrite, delete_run},
      {"POST", "/v1/runs/{run}/stop", kAccount, kWrite, stop_run},
      {"POST", "/v1/runs/{run}/switch", kAccount, kWrite, create_switch, true},
      {"GET", "/v1/runs/{run}/switches", kAccount, kRead, list_switches},
      {"POST", "/v1/runs/{run}/switches/{id}/cancel", kAccount, kWrite, cancel_switch},
      {"GET", "/v1/runs/{run}/logs", kAccount, kRead, get_logs},
      {"GET", "/v1/runs/{run}/metrics", kAccount, kRead, list_metrics},
      {"GET", "/v1/runs/{run}/events", kAccount, kRead, list_events},
      {"GET", "/v1/runs/{run}/compare", kAccount, kRead, get_compare},
      {"GET", "/v1/instances", kAccount, kRead, list_instances},
      {"GET", "/v1/instances/{id}", kAccount, kRead, get_instance},
      {"GET", "/v1/volumes", kAccount, kRead, list_volumes},
      {"GET", "/v1/snapshots", kAccount, kRead, list_snapshots},
      {"POST", "/agent/v1/enrol", kPublic, kWrite, enrol},
      {"GET", "/agent/v1/desired", kAgent, kRead, get_desired},
      {"POST", "/agent/v1/report", kAgent, kWrite, take_report},
      {"POST", "/agent/v1/streams", kAgent, kWrite, take_streams},
      {"GET", "/agent/v1/workdirs/{digest}", kAgent, kRead, get_workdir},
  };
  return table;
}

std::vector<std::string> route_names() {
  std::vector<std::string> names;
  for (const Route& route : routes()) {
    names.push_back(std::string(route.method) + " " + std::string(route.path));
  }
  return names;
}

}  // namespace anychip::server
