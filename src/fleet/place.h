// Which devices a request gets: pure choice over a list, explaining every "no".
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "fleet/facts.h"

namespace anychip::fleet {

struct Want {
  std::string chip;
  int64_t count = 1;
  NodeId node;                         // empty = any
  std::vector<std::string> preferred;  // device ids taken first when free (a restart stays put)
};
struct Placement {
  NodeId node;
  std::vector<std::string> device_ids;
};

// Ready nodes first, then nodes that are away (the run waits there as `queued`); inside these the
// node with the fewest free devices that still fits. Failures: "count_exceeds_total" when no node
// has that many of the chip at all, else kResourceExhausted "no_capacity".
Result<Placement> place(const Want& want, const std::vector<Device>& devices,
                        const std::vector<Node>& nodes);

}  // namespace anychip::fleet
