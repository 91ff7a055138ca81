// JSON over Boost.JSON: parse with limits, and read fields with errors that name the place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "base/error.h"

namespace anychip::json {

using boost::json::array;
using boost::json::object;
using boost::json::serialize;
using boost::json::value;

// Whole text must be one value; depth <= 32; reason "json_malformed" with the byte offset.
Result<value> parse(std::string_view text);

// Field readers for request bodies. `pointer` is the JSON pointer of the object itself ("" = root);
// an absent, null or mistyped field is kInvalidArgument with FieldError{pointer + "/" + key}.
Result<std::string> get_string(const object& from, std::string_view key,
                               std::string_view pointer = {});
Result<int64_t> get_int(const object& from, std::string_view key, std::string_view pointer = {});
Result<bool> get_bool(const object& from, std::string_view key, std::string_view pointer = {});
// Absent or null -> fallback; present with the wrong type -> error.
Result<std::string> get_string_or(const object& from, std::string_view key,
                                  std::string_view fallback, std::string_view pointer = {});
Result<int64_t> get_int_or(const object& from, std::string_view key, int64_t fallback,
                           std::string_view pointer = {});
Result<bool> get_bool_or(const object& from, std::string_view key, bool fallback,
                         std::string_view pointer = {});

// Lenient readers for data of our own that was validated when it was written.
std::string string_at(const object& from, std::string_view key);  // "" when absent
int64_t int_at(const object& from, std::string_view key);         // 0 when absent
double number_at(const object& from, std::string_view key);       // 0 when absent; ints convert
bool bool_at(const object& from, std::string_view key);
const object& object_at(const object& from, std::string_view key);  // empty object when absent
const array& array_at(const object& from, std::string_view key);    // empty array when absent

}  // namespace anychip::json
