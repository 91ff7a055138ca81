#include "base/json.h"

#include <fmt/format.h>
#include <boost/json/parse.hpp>
#include <boost/json/src.hpp>

namespace anychip::json {
namespace {

const value* find(const object& from, std::string_view key) {
  const value* found = from.if_contains(key);
  return found != nullptr && found->is_null() ? nullptr : found;
}

tl::unexpected<Error> field_error(std::string_view pointer, std::string_view key,
                                  std::string_view problem) {
  FieldError field{fmt::format("{}/{}", pointer, key), std::string(problem)};
  return tl::unexpected(Error{Code::kInvalidArgument,
                              "field_invalid",
                              fmt::format("'{}' {}", key, problem),
                              {},
                              {std::move(field)}});
}

constexpr std::string_view kMissing = "is required";
constexpr std::string_view kNotString = "must be a string";
constexpr std::string_view kNotInt = "must be an integer";
constexpr std::string_view kNotBool = "must be true or false";

std::optional<int64_t> as_int(const value& v) {
  if (v.is_int64()) return v.get_int64();
  if (v.is_uint64() && v.get_uint64() <= INT64_MAX) return static_cast<int64_t>(v.get_uint64());
  return std::nullopt;
}

}  // namespace

Result<value> parse(std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = 32;
  boost::json::stream_parser parser({}, options);
  boost::json::error_code problem;
  const size_t used = parser.write(text.data(), text.size(), problem);
  if (!problem) parser.finish(problem);
  if (problem) {
    return fail(Code::kInvalidArgument, "json_malformed",
                fmt::format("the text is not JSON: {} near byte {}", problem.message(), used));
  }
  return parser.release();
}

Result<std::string> get_string(const object& from, std::string_view key, std::string_view pointer) {
  const value* found = find(from, key);
  if (found == nullptr) return field_error(pointer, key, kMissing);
  if (!found->is_string()) return field_error(pointer, key, kNotString);
  return std::string(found->get_string());
}

Result<int64_t> get_int(const object& from, std::string_view key, std::string_view pointer) {
  const value* found = find(from, key);
  if (found == nullptr) return field_error(pointer, key, kMissing);
  const auto number = as_int(*found);
  if (!number) return field_error(pointer, key, kNotInt);
  return *number;
}

Result<bool> get_bool(const object& from, std::string_view key, std::string_view pointer) {
  const value* found = find(from, key);
  if (found == nullptr) return field_error(pointer, key, kMissing);
  if (!found->is_bool()) return field_error(pointer, key, kNotBool);
  return found->get_bool();
}

Result<std::string> get_string_or(const object& from, std::string_view key,
                                  std::string_view fallback, std::string_view pointer) {
  if (find(from, key) == nullptr) return std::string(fallback);
  return get_string(from, key, pointer);
}

Result<int64_t> get_int_or(const object& from, std::string_view key, int64_t fallback,
                           std::string_view pointer) {
  if (find(from, key) == nullptr) return fallback;
  return get_int(from, key, pointer);
}

Result<bool> get_bool_or(const object& from, std::string_view key, bool fallback,
                         std::string_view pointer) {
  if (find(from, key) == nullptr) return fallback;
  return get_bool(from, key, pointer);
}

std::string string_at(const object& from, std::string_view key) {
  const value* found = find(from, key);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

int64_t int_at(const object& from, std::string_view key) {
  const value* found = find(from, key);
  return found == nullptr ? 0 : as_int(*found).value_or(0);
}

double number_at(const object& from, std::string_view key) {
  const value* found = find(from, key);
  if (found == nullptr) return 0;
  if (found->is_double()) return found->get_double();
  return static_cast<double>(as_int(*found).value_or(0));
}

bool bool_at(const object& from, std::string_view key) {
  const value* found = find(from, key);
  return found != nullptr && found->is_bool() && found->get_bool();
}

const object& object_at(const object& from, std::string_view key) {
  static const object empty;
  const value* found = find(from, key);
  return found != nullptr && found->is_object() ? found->get_object() : empty;
}

const array& array_at(const object& from, std::string_view key) {
  static const array empty;
  const value* found = find(from, key);
  return found != nullptr && found->is_array() ? found->get_array() : empty;
}

}  // namespace anychip::json
