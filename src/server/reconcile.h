// The bridge between the database and the pure state machines: load a run's facts, let something
// change them, save what differs, in the caller's transaction.
#pragma once

#include <functional>
#include <string>

#include "fleet/facts.h"
#include "server/shared.h"

namespace anychip::server {

Result<fleet::Facts> load_facts(store::Db& db, const RunId& run);
// The nodes and devices of the installation alone: for a run that does not exist yet.
Status load_machines(store::Db& db, fleet::Facts& facts);
// Saves the difference, the events, the leases; raises the desired version of every node whose
// document changed. FAILPOINT "server.KIND" for the kind of each event.
Status save_facts(store::Db& db, const Shared& shared, const fleet::Facts& before,
                  fleet::Facts& after);

// load, change, advance, save. `change` may be empty.
using Change = std::function<Status(fleet::Facts&, const fleet::Context&)>;
Result<fleet::Facts> change_run(store::Db& db, const Shared& shared, const RunId& run,
                                const Change& change);

// Nodes that fell silent, then the next step of every run that is not at rest, then funds.
Status reconcile_all(store::Db& db, const Shared& shared);
Status reconcile_node_runs(store::Db& db, const Shared& shared, const NodeId& node);

Status tell(store::Db& db, const Shared& shared, const RunId& run, std::string_view kind,
            std::string_view message);
Status bump_desired(store::Db& db, const NodeId& node);

}  // namespace anychip::server
