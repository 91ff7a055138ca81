#include "server/rows.h"

namespace anychip::server::rows {

std::string to_json_text(const std::vector<std::string>& list) {
  json::array array;
  for (const std::string& item : list) array.emplace_back(item);
  return json::serialize(array);
}

std::string to_json_text(const std::map<std::string, std::string>& map) {
  json::object object;
  for (const auto& [key, text] : map) object[key] = text;
  return json::serialize(object);
}

void from_json_text(const std::string& text, std::vector<std::string>& list) {
  list.clear();
  const auto parsed = json::parse(text);
  CHECK(parsed.has_value() && parsed->is_array());
  for (const json::value& item : parsed->get_array()) list.emplace_back(item.get_string());
}

void from_json_text(const std::string& text, std::map<std::string, std::string>& map) {
  map.clear();
  const auto parsed = json::parse(text);
  CHECK(parsed.has_value() && parsed->is_object());
  for (const auto& [key, item] : parsed->get_object()) map[key] = std::string(item.get_string());
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

std::string upsert_text(std::string_view table, const std::vector<std::string>& columns) {
  std::vector<std::string> marks(columns.size(), "?"), updates;
  for (const std::string& column : columns) {
    if (column != "id") updates.push_back(column + " = excluded." + column);
  }
  return "INSERT INTO " + std::string(table) + "(" + join(columns, ", ") + ") VALUES(" +
         join(marks, ", ") + ") ON CONFLICT(id) DO UPDATE SET " + join(updates, ", ");
}

}  // namespace anychip::server::rows
