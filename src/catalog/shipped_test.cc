// The data under catalog/ as shipped: it loads, hangs together, and obeys the schemas for editors.
#include <cstdio>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "base/json.h"
#include "catalog/catalog.h"
#include "catalog/reader.h"

namespace anychip::catalog {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ShippedTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "anychip-share-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    share_ = pattern;
    fs::create_directories(share_ / "lib");
    std::FILE* out = std::fopen((share_ / "lib/libanychip_pjrt.so").c_str(), "wb");
    ASSERT_NE(out, nullptr);
    std::fclose(out);
    Result<Catalog> loaded = Catalog::load(ANYCHIP_SOURCE_DIR, share_.string());
    if (!loaded) {
      for (const FieldError& field : loaded.error().fields) {
        ADD_FAILURE() << field.pointer << ": " << field.message;
      }
      FAIL() << loaded.error().message;
    }
    catalog_ = std::move(*loaded);
  }
  void TearDown() override { fs::remove_all(share_); }

  fs::path share_;
  Catalog catalog_;
};

TEST_F(ShippedTest, EveryChipHasABackEndThatIsThere) {
  EXPECT_GE(catalog_.chips().size(), 72u);
  for (const Chip& chip : catalog_.chips()) {
    EXPECT_TRUE(catalog_.back_end(chip.back_end)) << chip.id;
    if (chip.price.micros > 0) {
      EXPECT_FALSE(chip.price_note.empty()) << chip.id;
    }
  }
  for (const char* id :
       {"cpu", "cuda", "rocm", "tpu", "ascend", "mlu", "gcu", "mtia", "musa", "xpu", "hpu"}) {
    EXPECT_TRUE(catalog_.back_end(id)) << id;
  }
}

TEST_F(ShippedTest, DemoChipsAreOfferedAndServed) {
  const Image& image = **catalog_.image("pytorch");
  for (const char* id : {"cpu", "tpu-sim", "npu-sim"}) {
    const Chip& chip = **catalog_.chip(id);
    EXPECT_GT(chip.price.micros, 0) << id;
    const auto variant = catalog_.variant_for(image, chip);
    ASSERT_TRUE(variant) << variant.error().message;
    EXPECT_EQ((*variant)->kind, "layers");
    EXPECT_EQ((*variant)->id, id);
  }
  EXPECT_THAT((*catalog_.chip("tpu-sim"))->price_note, HasSubstr("tpu-v5e"));
  EXPECT_EQ((*catalog_.chip("910B"))->id, "ascend-910b");
}

// The demo's whole experiment costs under 2 yuan: twenty minutes, the worst split being all of them
// on the dearest of the three chips would be 2.84; the story spends at most 5 minutes on each
// simulated chip and 20 on four cores.
TEST_F(ShippedTest, DemoCostsUnderTwoYuan) {
  const auto cost = [&](const char* id, int64_t minutes_used, int64_t count) {
    return cost_of({(*catalog_.chip(id))->price.micros * count}, minutes(minutes_used))->micros;
  };
  EXPECT_LT(cost("tpu-sim", 5, 1) + cost("npu-sim", 5, 1) + cost("cpu", 20, 4), 2'000'000);
}

TEST_F(ShippedTest, AllVariantsOfABaseShareTheLowestLayer) {
  const Image& image = **catalog_.image("pytorch");
  std::set<std::string> lowest, kinds;
  for (const Variant& variant : image.variants) {
    kinds.insert(variant.kind);
    if (variant.kind == "layers") lowest.insert(variant.layers.front());
  }
  EXPECT_EQ(lowest.size(), 1u);
  EXPECT_EQ(kinds.size(), 2u);
  for (const char* chip : {"h100-sxm", "mi300x"}) {
    const auto variant = catalog_.variant_for(image, **catalog_.chip(chip));
    ASSERT_TRUE(variant) << variant.error().message;
    EXPECT_THAT((*variant)->oci_reference, HasSubstr("@sha256:"));
  }
  EXPECT_EQ(catalog_.variant_for(image, **catalog_.chip("tpu-v5e")).error().reason,
            "variant_unavailable");
}

TEST_F(ShippedTest, TemplateNamesItsScript) {
  const Template& task = **catalog_.template_by("tang-poem-gpt");
  EXPECT_THAT(task.command, testing::Contains("--backend"));
  EXPECT_TRUE(catalog_.chip(task.chip));
  EXPECT_GT(task.memory_bytes, 0);
}

// A validator of the part of JSON Schema our schemas use; they are for editors, so they must accept
// what is shipped and know the same keys as the loader.
void validate(const YAML::Node& node, const json::object& schema, const std::string& where) {
  const std::string type = json::string_at(schema, "type");
  if (type == "object") {
    ASSERT_TRUE(node.IsMap()) << where;
    const json::object& properties = json::object_at(schema, "properties");
    for (const json::value& key : json::array_at(schema, "required")) {
      EXPECT_TRUE(node[std::string(key.as_string())]) << where << " lacks " << key.as_string();
    }
    for (const auto& entry : node) {
      const std::string key = entry.first.Scalar();
      const std::string place = where + "/" + key;
      if (const json::value* known = properties.if_contains(key)) {
        validate(entry.second, known->as_object(), place);
      } else {
        const json::value* others = schema.if_contains("additionalProperties");
        ASSERT_TRUE(others != nullptr && others->is_object()) << place << " is not in the schema";
        validate(entry.second, others->as_object(), place);
      }
    }
  } else if (type == "array") {
    ASSERT_TRUE(node.IsSequence()) << where;
    for (size_t i = 0; i < node.size(); ++i) {
      validate(node[i], json::object_at(schema, "items"), fmt::format("{}/{}", where, i));
    }
  } else {
    ASSERT_TRUE(node.IsScalar()) << where;
    if (type == "integer") {
      EXPECT_NO_THROW((void)node.as<int64_t>()) << where;
    }
    const json::array& allowed = json::array_at(schema, "enum");
    const auto is_value = [&](const json::value& v) { return v.as_string() == node.Scalar(); };
    EXPECT_TRUE(allowed.empty() || std::any_of(allowed.begin(), allowed.end(), is_value)) << where;
  }
}

TEST(Schema, AcceptsWhatIsShipped) {
  const std::string root = std::string(ANYCHIP_SOURCE_DIR) + "/catalog/";
  const std::pair<const char*, const char*> kPairs[] = {
      {"chips.yaml", "chips.schema.json"},
      {"back_ends.yaml", "back_ends.schema.json"},
      {"prices.yaml", "prices.schema.json"},
      {"images/pytorch.yaml", "image.schema.json"},
      {"templates/tang-poem-gpt.yaml", "template.schema.json"}};
  for (const auto& [data, schema] : kPairs) {
    const Result<std::string> text = read_file(root + "schema/" + schema);
    ASSERT_TRUE(text) << text.error().message;
    const Result<json::value> parsed = json::parse(*text);
    ASSERT_TRUE(parsed) << schema << ": " << parsed.error().message;
    validate(YAML::LoadFile(root + data), parsed->as_object(), data);
  }
}

}  // namespace
}  // namespace anychip::catalog
