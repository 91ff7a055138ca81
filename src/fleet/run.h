// The life of a run: queued → preparing → running → finished | failed | stopped, with `stopping`,
// `switching` and `lost` on the way. advance() is the one entry: called whenever something was
// observed and whenever time has passed; as often as one likes.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "fleet/facts.h"
#include "fleet/place.h"

namespace anychip::fleet {

// Takes every next step that the facts allow now. Same facts, same context: same result.
void advance(Facts& facts, const Context& context);

// A new run on its placement: volumes, first instance, first leg. `facts.run` is filled in.
void begin_run(Facts& facts, const Context& context, const Target& target,
               const Placement& placement);

// Asks for a checkpoint and the end. `cause`: "user", "funds_exhausted". 409 "run_ended" when it
// has ended; asking again changes nothing.
Status request_stop(Facts& facts, const Context& context, std::string cause);

}  // namespace anychip::fleet
