// Internal to net: headers as they are written to the wire.
#pragma once

#include <string>

#include "net/http.h"

namespace anychip::net {

// Appends "Name: content\r\n" for each, but for the framing (Content-Length, Transfer-Encoding,
// Connection), which net decides itself. Line ends inside become spaces: no header is smuggled in.
void append_headers(std::string& text, const Headers& headers);

}  // namespace anychip::net
