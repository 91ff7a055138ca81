// What must be true when everything has come to rest: the server's word against what happened.
#pragma once

#include "sim/world.h"

namespace anychip::sim {

void check_everything(World& world, Outcome& outcome);

}  // namespace anychip::sim
