// api/openapi.yaml names every user route of the table, and the table every one of the file.
#include <set>

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "server/core.h"

namespace anychip::server {
namespace {

std::string upper(std::string word) {
  for (char& c : word) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return word;
}

TEST(OpenApi, SaysWhatTheTableSays) {
  const YAML::Node file = YAML::LoadFile(std::string(ANYCHIP_SOURCE_DIR) + "/api/openapi.yaml");
  EXPECT_EQ(file["openapi"].as<std::string>().substr(0, 3), "3.1");
  std::set<std::string> in_file, in_table;
  for (const auto& path : file["paths"]) {
    for (const auto& method : path.second) {
      const std::string word = method.first.as<std::string>();
      if (word == "parameters") continue;
      in_file.insert(upper(word) + " " + path.first.as<std::string>());
      EXPECT_TRUE(method.second["operationId"]) << path.first << " " << word;
      EXPECT_TRUE(method.second["responses"]) << path.first << " " << word;
    }
  }
  for (const std::string& route : route_names()) in_table.insert(route);
  EXPECT_EQ(in_file, in_table);
}

// Every $ref leads somewhere.
void check_references(const YAML::Node& node, const YAML::Node& root) {
  if (node.IsMap()) {
    for (const auto& entry : node) {
      if (entry.first.as<std::string>() == "$ref" && entry.second.IsScalar()) {
        const std::string reference = entry.second.as<std::string>();
        ASSERT_EQ(reference.rfind("#/components/", 0), 0u) << reference;
        const std::string rest = reference.substr(13);
        const size_t slash = rest.find('/');
        EXPECT_TRUE(root["components"][rest.substr(0, slash)][rest.substr(slash + 1)]) << reference;
      }
      check_references(entry.second, root);
    }
  } else if (node.IsSequence()) {
    for (const auto& item : node) check_references(item, root);
  }
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  const YAML::Node file = YAML::LoadFile(std::string(ANYCHIP_SOURCE_DIR) + "/api/openapi.yaml");
  check_references(file, file);
}

}  // namespace
}  // namespace anychip::server
