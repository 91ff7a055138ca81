// A plain table for a terminal: aligned by display width, fitted to the terminal by cutting the
// elastic columns, coloured only when asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anychip::cli {

enum class Align { kLeft, kRight };
enum class Style { kPlain, kStrong, kFaint, kGood, kWarn, kBad };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  bool is_elastic = false;  // may be cut when the table is wider than the terminal
};

struct Cell {
  std::string text;
  Style style = Style::kPlain;
  Cell(std::string cell_text = {},
       Style cell_style = Style::kPlain)  // NOLINT: cells are written as text
      : text(std::move(cell_text)), style(cell_style) {}
  Cell(const char* cell_text) : text(cell_text) {}  // NOLINT
};

struct Fit {
  int columns = 0;  // terminal width; 0 = as wide as needed
  bool has_colour = false;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);  // shorter rows are filled with empty cells
  size_t size() const { return rows_.size(); }
  std::string render(Fit fit) const;

 private:
  std::vector<int> widths_for(int columns_max) const;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

std::string styled(std::string_view text, Style style, bool has_colour);

}  // namespace anychip::cli
