// The switch: eight steps (design §4), each repeatable. The old instance keeps its devices until
// the last one, so a fallback always has a chip to go to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "fleet/facts.h"
#include "fleet/place.h"

namespace anychip::fleet {

// One reason why a request cannot be done, with the field it is about.
struct Refusal {
  Code code = Code::kInvalidArgument;
  std::string reason, message, hint, pointer;
};

struct SwitchWish {
  std::optional<int64_t> at_step;
  int64_t verify_steps = 5;
};

// Step 1. Every reason at once; `target` is empty when the catalogue already said no.
std::vector<Refusal> check_switch(const Facts& facts, const Target* target, const SwitchWish& wish);

// Steps 2 and 3 begin: devices are held, the image is made ready. Precondition: check_switch is
// empty.
Status begin_switch(Facts& facts, const Context& context, const Target& target,
                    const SwitchWish& wish);

// The next steps of the switch under way, if there is one.
void advance_switch(Facts& facts, const Context& context);

// Before step 8: the run goes back to, or stays on, its old chip. 409 "switch_not_active".
Status cancel_switch(Facts& facts, const Context& context);

// The run itself was asked to stop in the middle of a switch: gives the run one current instance.
void abandon_switch(Facts& facts, const Context& context, std::string reason);

}  // namespace anychip::fleet
