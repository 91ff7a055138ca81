// The loss curve of a run across its legs: of a step that was repeated, the last leg's counts, and
// what a leg did beyond the point where a later one took over does not.
#pragma once

#include <string_view>

namespace anychip::server {

// A condition on metrics aliased m.
constexpr std::string_view kOfCurve =
    "NOT EXISTS (SELECT 1 FROM legs later WHERE later.run_id = m.run_id AND later.leg_index > "
    "m.leg_index AND later.first_step IS NOT NULL AND later.first_step <= m.step)";

}  // namespace anychip::server
