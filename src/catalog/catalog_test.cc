// A small catalogue in a temporary folder, then one mistake at a time with its message.
#include "catalog/catalog.h"

#include <cstdio>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "catalog/csv.h"

namespace anychip::catalog {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kHeader[] =
    "id,vendor,name,year,kind,mem_gb,mem_bw_gbs,fp32_tflops,tf32_tflops,bf16_tflops,fp16_tflops,"
    "fp8_tflops,int8_tops,tdp_w,link_bw_gbs,scale_up_domain,host_link,pjrt_platform,torch_device,"
    "source,confidence,notes\n";

class CatalogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "anychip-catalog-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    write("catalog/chips.csv",
          std::string(kHeader) +
              "h100,NVIDIA,H100,2022,gpu,80,3350,67,,989,,,,700,,8,,cuda,cuda,sheet,A,\n"
              "v5e,Google,TPU v5e,2023,tpu,16,819,,,197,,,,,,256,,tpu,xla,\"docs, page\",A,\n"
              "odd,X,Odd one,2027,asic,384-512,,,,,,,,,,,,,,,B,\n");
    write("catalog/chips.yaml",
          "back_ends:\n  cuda: [h100, odd]\n  tpu: [v5e]\n"
          "chips:\n"
          "  - {id: cpu, name: CPU, vendor: any, back_end: cpu}\n"
          "  - {id: v5e-sim, name: Simulated, vendor: us, back_end: tpu, simulates: v5e,"
          " default_count_per_node: 2}\n"
          "aliases:\n  hopper: h100\n");
    write(
        "catalog/back_ends.yaml",
        "back_ends:\n"
        "  - {id: cpu, torch_device: cpu}\n"
        "  - {id: cuda, torch_device: cuda, pci_ids: [\"10de:*\"], device_nodes: [/dev/nvidia*]}\n"
        "  - {id: tpu, torch_device: tpu, environment: {A: b}}\n");
    write("catalog/prices.yaml",
          "currency: CNY\n"
          "usd: {cny_micros_per_usd: 7100000, note: fixed}\n"
          "prices:\n"
          "  - {chip: cpu, kind: operator, micros_per_hour: 120000, date: d, note: core}\n"
          "  - {chip: v5e, kind: list, usd_micros: 1200000, micros_per_hour: 8520000,"
          " date: \"2026-01-01\", note: Somebody, source: page}\n");
    write("catalog/images/torch.yaml",
          "id: torch\ndescription: d\n"
          "layers:\n"
          "  - {id: base, kind: debian, suite: bookworm, packages: [python3]}\n"
          "  - {id: pip, kind: pip, requirements: catalog/images/requirements/a.txt}\n"
          "  - {id: ours, kind: files, files: [{from: python/anychip/, to: /opt/x/}]}\n"
          "  - {id: shim, kind: files, files: [{from: \"@lib/s.so\", to: /opt/s.so}]}\n"
          "variants:\n"
          "  - {id: cpu, back_end: cpu, chips: [cpu], kind: layers, layers: [base, pip, ours]}\n"
          "  - {id: sim, back_end: tpu, chips: [v5e-sim], kind: layers, layers: [base, shim],"
          " environment: {K: v}}\n"
          "  - {id: cuda, back_end: cuda, kind: oci, reference: a/b@sha256:" +
              std::string(64, 'a') +
              "}\n"
              "  - {id: tpu, back_end: tpu, kind: oci, reference: a/b, pending: true}\n");
    write("catalog/images/requirements/a.txt", "torch==2.13.0 --hash=sha256:00\n");
    write("python/anychip/__init__.py", "one\n");
    write("python/anychip/sub/two.py", "two\n");
    write("python/anychip/__pycache__/x.pyc", "junk");
    write("catalog/templates/poem.yaml",
          "id: poem\nname: Poem\ndescription: d\nimage: torch\ncommand: [python3, a.py]\n"
          "chip: hopper2\nworkdir: catalog/templates/poem\nmemory: 2GiB\n"
          "data: [{from: data/poems.txt, to: poems.txt}]\n");
    replace("catalog/templates/poem.yaml", "hopper2", "cpu");
    write("catalog/templates/poem/a.py", "pass\n");
    write("share/lib/s.so", "binary");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    const fs::path path = root_ / file;
    fs::create_directories(path.parent_path());
    std::FILE* out = std::fopen(path.c_str(), "wb");
    ASSERT_NE(out, nullptr);
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), out), text.size());
    std::fclose(out);
  }
  std::string read(const std::string& file) {
    std::string text(static_cast<size_t>(fs::file_size(root_ / file)), '\0');
    std::FILE* in = std::fopen((root_ / file).c_str(), "rb");
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), in), text.size());
    std::fclose(in);
    return text;
  }
  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = read(file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write(file, text.replace(at, from.size(), to));
  }
  Result<Catalog> load() { return Catalog::load(root_.string(), (root_ / "share").string()); }
  Catalog good() {
    Result<Catalog> loaded = load();
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? std::move(*loaded) : Catalog{};
  }
  // "file:line: message" of every problem.
  std::vector<std::string> problems() {
    const Result<Catalog> loaded = load();
    std::vector<std::string> found;
    if (loaded) return found;
    EXPECT_EQ(loaded.error().reason, "catalog_invalid");
    for (const FieldError& field : loaded.error().fields) {
      found.push_back(field.pointer + ": " + field.message);
    }
    return found;
  }

  fs::path root_;
};

TEST_F(CatalogTest, ReadsFactsAndKeepsUnknownUnknown) {
  const Catalog catalog = good();
  const Chip& h100 = **catalog.chip("h100");
  EXPECT_EQ(h100.memory_bytes, 80LL << 30);
  EXPECT_EQ(h100.bf16_tflops, 989);
  EXPECT_EQ(h100.tdp_w, 700);
  EXPECT_EQ(h100.price.micros, 0);
  const Chip& odd = **catalog.chip("odd");
  EXPECT_EQ(odd.memory_bytes, 0);  // 384-512: depends on the product
  EXPECT_FALSE(odd.bf16_tflops.has_value());
}

TEST_F(CatalogTest, SimulatedChipTakesMemoryAndPriceOfTheRealOne) {
  const Catalog catalog = good();
  const Chip& sim = **catalog.chip("v5e-sim");
  EXPECT_TRUE(sim.is_simulated);
  EXPECT_EQ(sim.memory_bytes, 16LL << 30);
  EXPECT_EQ(sim.price.micros, 8'520'000);
  EXPECT_EQ(sim.default_count_per_node, 2);
  EXPECT_THAT(sim.price_note, HasSubstr("price of the chip simulated (v5e)"));
  EXPECT_FALSE(sim.bf16_tflops.has_value());  // it is not that fast
}

TEST_F(CatalogTest, AliasesAndUpperCaseFindTheChip) {
  const Catalog catalog = good();
  EXPECT_EQ((*catalog.chip("Hopper"))->id, "h100");
  EXPECT_EQ((*catalog.chip("V5E"))->id, "v5e");
}

TEST_F(CatalogTest, UnknownNamesOfferTheNearest) {
  const Catalog catalog = good();
  const auto chip = catalog.chip("v5e-smi");
  ASSERT_FALSE(chip);
  EXPECT_EQ(chip.error().code, Code::kNotFound);
  EXPECT_EQ(chip.error().reason, "chip_unknown");
  EXPECT_EQ(chip.error().message, "there is no chip 'v5e-smi'");
  EXPECT_EQ(chip.error().hint, "did you mean v5e-sim?");
  EXPECT_EQ(catalog.image("tork").error().hint, "did you mean torch?");
  EXPECT_EQ(catalog.back_end("zzzzzzzz").error().hint, "known: cpu, cuda, tpu");
  EXPECT_EQ(catalog.template_by("x").error().reason, "template_unknown");
}

TEST_F(CatalogTest, VariantIsChosenByChipThenByBackEnd) {
  const Catalog catalog = good();
  const Image& image = **catalog.image("torch");
  const auto variant = [&](const char* chip) {
    return catalog.variant_for(image, **catalog.chip(chip));
  };
  EXPECT_EQ((*variant("cpu"))->id, "cpu");
  EXPECT_EQ((*variant("v5e-sim"))->id, "sim");
  EXPECT_EQ((*variant("h100"))->id, "cuda");
  const auto pending = variant("v5e");
  ASSERT_FALSE(pending);
  EXPECT_EQ(pending.error().reason, "variant_unavailable");
  EXPECT_THAT(pending.error().message, HasSubstr("pending in the catalogue"));
}

TEST_F(CatalogTest, ASimulatedChipIsNeverServedByTheRealChipsVariant) {
  replace("catalog/images/torch.yaml", "chips: [v5e-sim]", "chips: [v5e]");
  const Catalog catalog = good();
  const auto variant = catalog.variant_for(**catalog.image("torch"), **catalog.chip("v5e-sim"));
  ASSERT_FALSE(variant);
  EXPECT_EQ(variant.error().reason, "variant_missing");
  EXPECT_EQ(variant.error().hint, "it serves: cpu, v5e, real chips of cuda");
}

TEST_F(CatalogTest, FoldersOfALayerAreExpandedWithoutCaches) {
  const Catalog catalog = good();
  EXPECT_THAT((*catalog.layer("ours"))->files,
              ElementsAre(std::pair("python/anychip/__init__.py", "/opt/x/__init__.py"),
                          std::pair("python/anychip/sub/two.py", "/opt/x/sub/two.py")));
}

TEST_F(CatalogTest, DigestFollowsTheContentAndNothingElse) {
  const Catalog before = good();
  EXPECT_EQ((*before.layer("ours"))->digest, (*good().layer("ours"))->digest);
  write("python/anychip/__pycache__/y.pyc", "more junk");
  EXPECT_EQ((*before.layer("ours"))->digest, (*good().layer("ours"))->digest);
  write("python/anychip/sub/two.py", "three\n");
  const Catalog after = good();
  EXPECT_NE((*before.layer("ours"))->digest, (*after.layer("ours"))->digest);
  EXPECT_EQ((*before.layer("base"))->digest, (*after.layer("base"))->digest);
  const auto variant_digest = [](const Catalog& catalog, size_t i) {
    return catalog.images().front().variants[i].digest;
  };
  EXPECT_NE(variant_digest(before, 0), variant_digest(after, 0));
  EXPECT_EQ(variant_digest(before, 1), variant_digest(after, 1));
}

TEST_F(CatalogTest, MissingBuildOutputOnlyRefusesItsVariant) {
  fs::remove(root_ / "share/lib/s.so");
  const Catalog catalog = good();
  const Image& image = **catalog.image("torch");
  EXPECT_TRUE(catalog.variant_for(image, **catalog.chip("cpu")));
  const auto refused = catalog.variant_for(image, **catalog.chip("v5e-sim"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("is not built yet: run make build"));
}

TEST_F(CatalogTest, TemplateSizesAndData) {
  const Catalog catalog = good();
  const Template& poem = **catalog.template_by("poem");
  EXPECT_EQ(poem.memory_bytes, 2LL << 30);
  EXPECT_EQ(poem.restarts_max, 3);
  EXPECT_THAT(poem.data, ElementsAre(std::pair("data/poems.txt", "poems.txt")));
}

TEST_F(CatalogTest, EveryProblemIsToldAtOnceWithItsLine) {
  replace("catalog/back_ends.yaml", "torch_device: cpu", "torch_divice: cpu");
  replace("catalog/chips.yaml", "hopper: h100", "hopper: h1000");
  replace("catalog/prices.yaml", "8520000", "8520001");
  EXPECT_THAT(
      problems(),
      ElementsAre(
          HasSubstr("catalog/back_ends.yaml:2: 'torch_device' is required"),
          HasSubstr("catalog/back_ends.yaml:2: unknown key 'torch_divice'; known here: "),
          "catalog/chips.yaml:8: alias 'hopper' names chip 'h1000', which is not there; did you "
          "mean 'h100'?",
          "catalog/prices.yaml:5: 8520001 is not usd_micros 1200000 at 7100000 micro-yuan a dollar "
          "(= 8520000)"));
}

struct Mistake {
  const char* name;
  const char* file;
  const char* from;
  const char* to;
  const char* problem;
};

class CatalogMistakeTest : public CatalogTest, public testing::WithParamInterface<Mistake> {};

TEST_P(CatalogMistakeTest, IsNamed) {
  replace(GetParam().file, GetParam().from, GetParam().to);
  EXPECT_THAT(problems(), testing::Contains(HasSubstr(GetParam().problem)));
}

constexpr Mistake kMistakes[] = {
    {"csv_column", "catalog/chips.csv", "vendor,name", "name,vendor",
     "chips.csv:1: the columns must be id,vendor"},
    {"csv_cells", "catalog/chips.csv", "h100,NVIDIA,", "h100,",
     "chips.csv:2: 21 cells, 22 are expected"},
    {"csv_number", "catalog/chips.csv", ",3350,", ",fast,",
     "chips.csv:2: mem_bw_gbs 'fast' is not a number"},
    {"csv_twice", "catalog/chips.csv", "odd,X", "h100,X",
     "chips.csv:4: chip 'h100' is already defined at catalog/chips.csv:2"},
    {"csv_quote", "catalog/chips.csv", "page\"", "page",
     "line 3: a quote is opened and never closed"},
    {"chip_orphan", "catalog/chips.yaml", "[h100, odd]", "[h100]",
     "chips.csv:4: no back end reaches chip 'odd'"},
    {"chip_two_back_ends", "catalog/chips.yaml", "tpu: [v5e]", "tpu: [v5e, h100]",
     "chips.yaml:3: chip 'h100' has the back end 'cuda' already"},
    {"chip_no_back_end", "catalog/chips.yaml",
     "  tpu:", "  tqu:", "chips.yaml:3: there is no back end 'tqu'; did you mean 'tpu'?"},
    {"chip_simulates", "catalog/chips.yaml", "simulates: v5e,", "simulates: v5x,",
     "chips.yaml:6: there is no chip 'v5x'"},
    {"chip_twice", "catalog/chips.yaml", "id: cpu", "id: v5e",
     "chips.yaml:5: chip 'v5e' is already defined"},
    {"chip_id", "catalog/chips.yaml", "id: cpu", "id: C P U", "chip id 'C P U' may hold only a-z"},
    {"chip_count", "catalog/chips.yaml", "node: 2", "node: two",
     "'default_count_per_node' must be a whole number >= 0, not 'two'"},
    {"price_negative", "catalog/prices.yaml", "120000", "-5",
     "prices.yaml:4: 'micros_per_hour' must be a whole number >= 0, not '-5'"},
    {"price_fraction", "catalog/prices.yaml", "120000", "0.12",
     "'micros_per_hour' must be a whole number >= 0, not '0.12'"},
    {"price_kind", "catalog/prices.yaml", "kind: operator", "kind: guess",
     "'kind' must be list or operator"},
    {"price_source", "catalog/prices.yaml", ", source: page", "",
     "prices.yaml:5: 'source' is required"},
    {"price_chip", "catalog/prices.yaml", "chip: cpu", "chip: cpx",
     "there is no chip 'cpx'; did you mean 'cpu'?"},
    {"price_simulated", "catalog/prices.yaml", "chip: cpu", "chip: v5e-sim",
     "'v5e-sim' is simulated: it shows the price of 'v5e'"},
    {"price_twice", "catalog/prices.yaml", "chip: cpu", "chip: v5e",
     "chip 'v5e' has a price at line 4 already"},
    {"currency", "catalog/prices.yaml", "CNY", "USD", "prices.yaml:1: 'currency' must be CNY"},
    {"yaml_syntax", "catalog/prices.yaml", "prices:", "prices: [", "catalog/prices.yaml:"},
    {"yaml_key_twice", "catalog/prices.yaml", "currency: CNY", "currency: CNY\ncurrency: CNY",
     "prices.yaml:2: 'currency' is given twice"},
    {"yaml_not_a_map", "catalog/prices.yaml", "{cny_micros_per_usd: 7100000, note: fixed}", "7",
     "prices.yaml:2: a mapping (key: value) is expected here"},
    {"back_end_pci", "catalog/back_ends.yaml", "10de:*", "nvidia",
     "pci id 'nvidia' must look like"},
    {"back_end_node", "catalog/back_ends.yaml", "/dev/nvidia*", "/etc/*",
     "device node '/etc/*' must begin with /dev/"},
    {"layer_kind", "catalog/images/torch.yaml", "kind: debian", "kind: rpm",
     "torch.yaml:4: layer kind 'rpm' must be debian, pip or files"},
    {"layer_requirements", "catalog/images/torch.yaml", "a.txt", "b.txt", "torch.yaml:5: open "},
    {"layer_folder", "catalog/images/torch.yaml", "python/anychip/,", "python/nothing/,",
     "torch.yaml:6: folder 'python/nothing/' holds no file"},
    {"layer_escape", "catalog/images/torch.yaml", "python/anychip/,", "../secrets/,",
     "'../secrets/' must be a path inside the installation"},
    {"layer_target", "catalog/images/torch.yaml", "to: /opt/x/", "to: opt/x/",
     "'opt/x/' must be an absolute path"},
    {"variant_layer", "catalog/images/torch.yaml", "[base, pip, ours]", "[base, pop]",
     "torch.yaml:9: there is no layer 'pop'; did you mean 'pip'?"},
    {"variant_chip", "catalog/images/torch.yaml", "chips: [cpu]", "chips: [h100]",
     "chip 'h100' has the back end 'cuda', the variant 'cpu'"},
    {"variant_digest", "catalog/images/torch.yaml", "@sha256:a", "@sha256:z",
     "must be repository@sha256:<64 hex digits>"},
    {"variant_twice", "catalog/images/torch.yaml", "id: sim", "id: cpu",
     "variant 'cpu' is already defined at catalog/images/torch.yaml:9"},
    {"template_image", "catalog/templates/poem.yaml", "image: torch", "image: torsh",
     "there is no image 'torsh'; did you mean 'torch'?"},
    {"template_chip", "catalog/templates/poem.yaml", "chip: cpu", "chip: cpuu",
     "poem.yaml:6: there is no chip 'cpuu'"},
    {"template_workdir", "catalog/templates/poem.yaml", "templates/poem\n", "templates/poim\n",
     "there is no folder 'catalog/templates/poim'"},
    {"template_size", "catalog/templates/poem.yaml", "2GiB", "2 apples",
     "'memory' must be a size such as 512MiB or 4GiB, not '2 apples'"},
    {"template_command", "catalog/templates/poem.yaml", "[python3, a.py]", "[]",
     "'command' must name a program"},
};
INSTANTIATE_TEST_SUITE_P(All, CatalogMistakeTest, testing::ValuesIn(kMistakes),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_F(CatalogTest, MissingFolderIsAnErrorNotACrash) {
  const Result<Catalog> loaded = Catalog::load((root_ / "nowhere").string(), "");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().reason, "catalog_invalid");
  EXPECT_FALSE(loaded.error().hint.empty());
}

TEST(Csv, QuotesCommasAndLineBreaks) {
  const auto rows = parse_csv("a,b\r\n\"x, \"\"y\"\"\n2\",\n\nlast,row");
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 3u);
  EXPECT_THAT((*rows)[1].cells, ElementsAre("x, \"y\"\n2", ""));
  EXPECT_EQ((*rows)[2].line, 5);
  EXPECT_THAT((*rows)[2].cells, ElementsAre("last", "row"));
  EXPECT_EQ(parse_csv("a\n\"b\"c\n").error().message, "2: text follows a closing quote");
}

TEST(Nearest, RanksByEditsAndPrefersWhatBeginsWithTheWord) {
  const std::vector<std::string> known = {"tpu-sim", "npu-sim", "cpu", "h100-sxm", "h200"};
  EXPECT_THAT(nearest("tpu-smi", known), ElementsAre("tpu-sim", "npu-sim"));
  EXPECT_EQ(nearest("H100", known).front(), "h100-sxm");
  EXPECT_THAT(nearest("banana", known), ElementsAre());
  EXPECT_THAT(nearest("", known), ElementsAre());
  EXPECT_THAT(nearest(std::string(1 << 20, 'x'), known), ElementsAre());
}

}  // namespace
}  // namespace anychip::catalog
