// Loading and saving of the structs of fleet/types.h: the SQL is made from the fields they visit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "fleet/types.h"
#include "store/db.h"

namespace anychip::server::rows {

template <class T>
struct Table;
template <>
struct Table<fleet::Run> {
  static constexpr std::string_view kName = "runs";
};
template <>
struct Table<fleet::Leg> {
  static constexpr std::string_view kName = "legs";
};
template <>
struct Table<fleet::Instance> {
  static constexpr std::string_view kName = "instances";
};
template <>
struct Table<fleet::Volume> {
  static constexpr std::string_view kName = "volumes";
};
template <>
struct Table<fleet::Snapshot> {
  static constexpr std::string_view kName = "snapshots";
};
template <>
struct Table<fleet::Switch> {
  static constexpr std::string_view kName = "switches";
};

std::string to_json_text(const std::vector<std::string>& list);
std::string to_json_text(const std::map<std::string, std::string>& map);
void from_json_text(const std::string& text, std::vector<std::string>& list);
void from_json_text(const std::string& text, std::map<std::string, std::string>& map);

struct Names {
  std::vector<std::string> names;
  template <class F>
  void operator()(std::string_view name, F&) {
    names.emplace_back(name);
  }
};

struct Binder {
  std::vector<store::Value> values;
  template <class F>
  void operator()(std::string_view, F& field) {
    if constexpr (std::is_enum_v<F>)
      values.push_back(std::string(name_of(field)));
    else if constexpr (requires { to_json_text(field); })
      values.push_back(to_json_text(field));
    else
      values.push_back(store::to_value(field));
  }
};

struct Reader {
  const store::Row& row;
  size_t at = 0;
  template <class F>
  void operator()(std::string_view, F& field) {
    const size_t column = at++;
    if constexpr (std::is_enum_v<F>)
      CHECK(parse(row.text(column), field));
    else if constexpr (requires { from_json_text(std::string(), field); }) {
      from_json_text(row.text(column), field);
    } else if constexpr (requires {
                           field.has_value();
                           *field;
                         }) {
      if (row.is_null(column))
        field.reset();
      else
        read_into(column, field.emplace());
    } else
      read_into(column, field);
  }
  template <class F>
  void read_into(size_t column, F& field) {
    if constexpr (std::is_same_v<F, std::string>)
      field = row.text(column);
    else if constexpr (std::is_same_v<F, bool>)
      field = row.integer(column) != 0;
    else if constexpr (std::is_floating_point_v<F>)
      field = row.real(column);
    else if constexpr (std::is_integral_v<F>)
      field = row.integer(column);
    else if constexpr (requires { field.text; })
      field.text = row.text(column);
    else if constexpr (requires { field.us; })
      field.us = row.integer(column);
    else
      field.micros = row.integer(column);
  }
};

template <class T>
const std::vector<std::string>& columns() {
  static const std::vector<std::string> names = [] {
    T item;
    Names visitor;
    item.visit(visitor);
    return visitor.names;
  }();
  return names;
}

std::string join(const std::vector<std::string>& words, std::string_view separator);
std::string upsert_text(std::string_view table, const std::vector<std::string>& columns);

// select<Leg>(db, "run_id = ? ORDER BY leg_index", run)
template <class T, class... Args>
Result<std::vector<T>> select(store::Db& db, std::string_view where, const Args&... args) {
  static const std::string head =
      "SELECT " + join(columns<T>(), ", ") + " FROM " + std::string(Table<T>::kName) + " WHERE ";
  TRY(const auto found, db.query(head + std::string(where), args...));
  std::vector<T> items;
  items.reserve(found.size());
  for (const store::Row& row : found) {
    T item;
    item.visit(Reader{row});
    items.push_back(std::move(item));
  }
  return items;
}

template <class T, class... Args>
Result<std::optional<T>> select_one(store::Db& db, std::string_view where, const Args&... args) {
  TRY(auto items, select<T>(db, where, args...));
  if (items.empty()) return std::nullopt;
  return std::optional<T>(std::move(items.front()));
}

template <class T>
Status save(store::Db& db, T item) {
  static const std::string text = upsert_text(Table<T>::kName, columns<T>());
  Binder binder;
  item.visit(binder);
  TRY_VOID(db.query_values(text, std::move(binder.values)));
  return {};
}

// Saves what `after` has and `before` (by id) has not, or has otherwise.
template <class T>
Status save_changed(store::Db& db, const std::vector<T>& before, const std::vector<T>& after) {
  for (const T& item : after) {
    const auto same = [&](const T& other) { return other.id == item.id && other == item; };
    if (std::any_of(before.begin(), before.end(), same)) continue;
    TRY_VOID(save(db, item));
  }
  return {};
}

}  // namespace anychip::server::rows
