#include "pjrt/errors.h"

#include <utility>

namespace anychip::pjrt {
namespace {

struct OwnError : abi::Error {
  abi::ErrorCode code = abi::kInternal;
  std::string message;
};

void give_message(const abi::Error* error, const char** message, size_t* message_size) {
  const std::string& text = message_of_ours(error);
  *message = text.c_str();
  *message_size = text.size();
}

void visit_no_payload(const abi::Error*, abi::PayloadVisitor, void*) {}

constexpr abi::ErrorFunctions kFunctions = {sizeof(abi::ErrorFunctions),
                                            sizeof(OwnError),
                                            nullptr,
                                            destroy_ours,
                                            give_message,
                                            code_of_ours,
                                            visit_no_payload};

}  // namespace

abi::Error* make_error(abi::ErrorCode code, std::string message) {
  auto* error = new OwnError;
  error->functions = &kFunctions;
  error->code = code;
  error->message = std::move(message);
  return error;
}

// Older plugins keep something else in an error's first word, but never the address of our table.
bool is_ours(const abi::Error* error) {
  return error != nullptr && error->functions == &kFunctions;
}

void destroy_ours(abi::Error* error) { delete static_cast<OwnError*>(error); }

const std::string& message_of_ours(const abi::Error* error) {
  return static_cast<const OwnError*>(error)->message;
}

abi::ErrorCode code_of_ours(const abi::Error* error) {
  return static_cast<const OwnError*>(error)->code;
}

}  // namespace anychip::pjrt
