// Who asks. Tokens and node keys are random 256-bit values, stored as SHA-256.
#pragma once

#include "server/shared.h"

namespace anychip::server {

std::string make_secret(Random& random);  // 64 hex characters

// 401 "token_missing" or "token_invalid"; a token of the wrong kind is as good as none.
Result<Principal> authenticate(store::Db& db, const Shared& shared, const net::Request& request,
                               Access access);

// Idempotency-Key: the stored answer of the same key and body, nothing, or 422
// "idempotency_key_reused" when the body differs.
Result<std::optional<net::Response>> recall(store::Db& db, const Principal& who,
                                            const net::Request& request);
Status remember(store::Db& db, const Shared& shared, const Principal& who,
                const net::Request& request, const net::Response& response);

}  // namespace anychip::server
