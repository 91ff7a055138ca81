#include "catalog/csv.h"

#include <fmt/format.h>

namespace anychip::catalog {
namespace {

tl::unexpected<Error> malformed(int line, std::string_view what) {
  return fail(Code::kInvalidArgument, "csv_malformed", fmt::format("{}: {}", line, what));
}

class CsvParser {
 public:
  explicit CsvParser(std::string_view text) : text_(text) {}

  Result<std::vector<CsvRow>> parse() {
    std::vector<CsvRow> rows;
    while (at_ < text_.size()) {
      CsvRow row{line_, {}};
      TRY_VOID(parse_row(row));
      const bool is_blank = row.cells.size() == 1 && row.cells.front().empty();
      if (!is_blank) rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  bool at_row_end() const {
    return at_ >= text_.size() || text_[at_] == '\n' ||
           (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n');
  }

  Status parse_row(CsvRow& row) {
    for (;;) {
      std::string cell;
      if (at_ < text_.size() && text_[at_] == '"') {
        TRY_VOID(parse_quoted(cell));
      } else {
        while (!at_row_end() && text_[at_] != ',') cell += text_[at_++];
      }
      row.cells.push_back(std::move(cell));
      if (at_row_end()) break;
      ++at_;  // the comma
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size()) ++at_;
    ++line_;
    return {};
  }

  Status parse_quoted(std::string& cell) {
    const int first_line = line_;
    ++at_;
    for (;; ++at_) {
      if (at_ >= text_.size()) return malformed(first_line, "a quote is opened and never closed");
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        cell += text_[at_];
        continue;
      }
      ++at_;
      if (at_ < text_.size() && text_[at_] == '"') {
        cell += '"';
        continue;
      }
      if (!at_row_end() && text_[at_] != ',') {
        return malformed(line_, "text follows a closing quote");
      }
      return {};
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

Result<std::vector<CsvRow>> parse_csv(std::string_view text) { return CsvParser(text).parse(); }

}  // namespace anychip::catalog
