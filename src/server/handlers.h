// One function per route of the table in routes.cc, grouped by the file that holds them.
#pragma once

#include "server/shared.h"

namespace anychip::server {

// accounts.cc
Result<net::Outcome> create_account(Call& call);
Result<net::Outcome> get_account(Call& call);
Result<net::Outcome> get_health(Call& call);
Result<net::Outcome> get_ready(Call& call);

// catalog_routes.cc
Result<net::Outcome> list_chips(Call& call);
Result<net::Outcome> list_images(Call& call);
Result<net::Outcome> list_templates(Call& call);
Result<net::Outcome> list_offers(Call& call);
Result<net::Outcome> list_nodes(Call& call);

// workdirs.cc
Result<std::string> store_workdir(Shared& shared, const net::Request& request);
Result<std::string> pack_template(Shared& shared, const net::Request& request);
Result<net::Outcome> create_workdir(Call& call);
Result<net::Outcome> get_workdir(Call& call);

// run_create.cc, runs.cc
Result<net::Outcome> create_run(Call& call);
Result<net::Outcome> list_runs(Call& call);
Result<net::Outcome> get_run(Call& call);
Result<net::Outcome> delete_run(Call& call);
Result<net::Outcome> stop_run(Call& call);
Result<net::Outcome> list_instances(Call& call);
Result<net::Outcome> get_instance(Call& call);
Result<net::Outcome> list_volumes(Call& call);
Result<net::Outcome> list_snapshots(Call& call);

// switches.cc
Result<net::Outcome> create_switch(Call& call);
Result<net::Outcome> list_switches(Call& call);
Result<net::Outcome> cancel_switch(Call& call);

// streams.cc, read_streams.cc
Result<net::Outcome> take_streams(Call& call);
Result<net::Outcome> get_logs(Call& call);
Result<net::Outcome> list_metrics(Call& call);
Result<net::Outcome> list_events(Call& call);

// compare.cc
Result<net::Outcome> get_compare(Call& call);

// agent_routes.cc, report.cc
Result<net::Outcome> enrol(Call& call);
Result<net::Outcome> get_desired(Call& call);
Result<net::Outcome> take_report(Call& call);

}  // namespace anychip::server
