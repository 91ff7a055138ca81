// Errors the shim itself gives to the framework, in the form every version of the interface takes.
#pragma once

#include <string>

#include "pjrt/c_api.h"

namespace anychip::pjrt {

abi::Error* make_error(abi::ErrorCode code, std::string message);
bool is_ours(const abi::Error* error);
// The three table entries for errors of ours.
void destroy_ours(abi::Error* error);
const std::string& message_of_ours(const abi::Error* error);
abi::ErrorCode code_of_ours(const abi::Error* error);

}  // namespace anychip::pjrt
