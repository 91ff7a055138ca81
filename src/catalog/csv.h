// A small CSV reader (RFC 4180): quoted cells may hold commas, doubled quotes and line breaks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anychip::catalog {

struct CsvRow {
  int line = 0;  // where the row begins, from 1
  std::vector<std::string> cells;
};

// Rows without blank lines, the header included. An open quote or text after a closing quote is
// kInvalidArgument "csv_malformed"; the message begins with the line number.
Result<std::vector<CsvRow>> parse_csv(std::string_view text);

}  // namespace anychip::catalog
