// Builds a real small image (debootstrap, pip, files) from this machine's own mirrors and wheels it
// makes itself. Proves: content, one clear sentence per failure, isolation of the install, resuming
// after kill -9, sharing between processes. Needs root and the machine's Debian mirror.
#include "agent/local/image_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <thread>

#include <fmt/format.h>

#include "agent/local/wheel_cache.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/time.h"
#include "sys/files.h"
#include "sys/mounts.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

// A wheel is a zip with three metadata files; $1 folder, $2 name, $3 version.
constexpr std::string_view kMakeWheel = R"(
import sys, zipfile
folder, name, version = sys.argv[1:]
info = f"{name}-{version}.dist-info"
files = {
    f"{name}/__init__.py": f"version = '{version}'\n" + "# filler\n" * 20000,
    f"common/{name}.py": "# part of a namespace package\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
files[f"{info}/RECORD"] = "".join(f"{f},,\n" for f in [*files, f"{info}/RECORD"])
with zipfile.ZipFile(f"{folder}/{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as z:
    for path, text in files.items(): z.writestr(path, text)
)";

// Stands where pip would be in a layer below, and writes down what it can see and do.
constexpr std::string_view kProbe = R"(
import json, os, socket
def refused(action):
    try: action(); return False
    except OSError: return True
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
seen = {
    "root": sorted(os.listdir("/")),
    "processes": [p for p in os.listdir("/proc") if p.isdigit()],
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "capabilities": status["CapEff"].strip() + status["CapBnd"].strip(),
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "environment": sorted(os.environ),
    "dev": sorted(os.listdir("/dev")),
    "wheels_read_only": refused(lambda: open("/wheels/x", "w")),
    "network_refused": refused(lambda: socket.create_connection(("127.0.0.1", 1), 2)),
    "mount_refused": refused(lambda: os.chroot("/tmp")),
    "files": len(os.listdir("/proc/self/fd")),
}
json.dump(seen, open("/opt/anychip/env/probe.json", "w"))
)";

class ImageStoreTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("PIP_CONFIG_FILE", "/dev/null", 1);
    for (const char* name : {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"})
      ::unsetenv(name);
    std::string name = "/var/tmp/anychip-image-XXXXXX";
    if (::geteuid() != 0 || ::mkdtemp(name.data()) == nullptr) return;
    folder_ = new std::string(name);
  }
  static void TearDownTestSuite() {
    if (folder_ == nullptr) return;
    EXPECT_TRUE(sys::remove_tree(*folder_));
    delete folder_;
    folder_ = nullptr;
  }
  void SetUp() override {
    if (folder_ == nullptr) GTEST_SKIP() << "needs root: debootstrap and mounts";
    ASSERT_TRUE(sys::remove_tree(*folder_ + "/cat"));
    ASSERT_TRUE(sys::remove_tree(wheels()));
    ASSERT_TRUE(sys::make_folders(wheels()));
    ASSERT_TRUE(sys::make_folders(*folder_ + "/site"));
    ::setenv("PIP_NO_INDEX", "1", 1);
    ::setenv("PIP_FIND_LINKS", (*folder_ + "/site").c_str(), 1);
    make_wheel("alpha", "1.0");
    make_wheel("beta", "2.0+site");
    write("catalog/chips.csv",
          "id,vendor,name,year,kind,mem_gb,mem_bw_gbs,fp32_tflops,tf32_tflops,bf16_tflops,fp16_"
          "tflops,fp8_tflops,"
          "int8_tops,tdp_w,link_bw_gbs,scale_up_domain,host_link,pjrt_platform,torch_device,source,"
          "confidence,notes\n");
    write("catalog/chips.yaml",
          "back_ends: {}\nchips:\n  - {id: cpu, name: CPU, vendor: any, back_end: cpu}\naliases: "
          "{}\n");
    write("catalog/back_ends.yaml", "back_ends:\n  - {id: cpu, torch_device: cpu}\n");
    write("catalog/prices.yaml",
          "currency: CNY\nusd: {cny_micros_per_usd: 7100000, note: fixed}\nprices:\n"
          "  - {chip: cpu, kind: operator, micros_per_hour: 120000, date: d, note: core}\n");
    ASSERT_TRUE(sys::make_folders(*folder_ + "/cat/catalog/templates"));
    write("ours/tool.py", "print('tool')\n");
    write("ours/pip/__main__.py", std::string(kProbe));
    write("good.txt", pin("alpha", "1.0", digest("alpha-1.0")) +
                          pin("beta", "2.0", std::string(64, '0'), digest("beta-2.0+site")));
    make_wheel("eta", "1.0");
    write("more.txt", pin("eta", "1.0", digest("eta-1.0")));
    write("bad.txt", pin("alpha", "1.0", std::string(64, '1')));
    write("absent.txt", pin("gamma", "1.0", std::string(64, '1')));
    write(
        "catalog/images/mini.yaml",
        "id: mini\ndescription: d\nlayers:\n"
        "  - {id: base, kind: debian, suite: bookworm, packages: [python3, python3-venv]}\n"
        "  - {id: good, kind: pip, requirements: good.txt}\n"
        "  - {id: more, kind: pip, requirements: more.txt}\n"
        "  - {id: bad, kind: pip, requirements: bad.txt}\n"
        "  - {id: absent, kind: pip, requirements: absent.txt}\n"
        "  - {id: ours, kind: files, files: [{from: ours/tool.py, to: /opt/anychip/env/tool.py}]}\n"
        "  - {id: probe, kind: files, files: [{from: ours/pip/, to: "
        "/usr/lib/python3/dist-packages/pip/}]}\n"
        "variants:\n" +
            variant("good", "base, good, ours") + variant("more", "base, good, more") +
            variant("bad", "base, bad") + variant("absent", "base, absent") +
            variant("probe", "base, probe, good") + variant("files", "ours"));
  }

  static std::string wheels() { return *folder_ + "/wheels"; }
  static std::string variant(const std::string& id, const std::string& layers) {
    return fmt::format("  - {{id: {}, back_end: cpu, chips: [cpu], kind: layers, layers: [{}]}}\n",
                       id, layers);
  }
  static std::string pin(const std::string& name, const std::string& version, const std::string& a,
                         const std::string& b = "") {
    return fmt::format("{}=={} --hash=sha256:{}{}\n", name, version, a,
                       b.empty() ? "" : " --hash=sha256:" + b);
  }
  static std::string digest(const std::string& stem) {
    return *sha256_of_file(*folder_ + "/site/" + stem + "-py3-none-any.whl");
  }
  static void make_wheel(const std::string& name, const std::string& version) {
    if (sys::exists(fmt::format("{}/site/{}-{}-py3-none-any.whl", *folder_, name, version))) return;
    const auto made =
        sys::run_ok({"python3", "-c", std::string(kMakeWheel), *folder_ + "/site", name, version});
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
  }
  static void write(const std::string& path, const std::string& text) {
    const std::string full = *folder_ + "/cat/" + path;
    ASSERT_TRUE(sys::make_folders(sys::parent_of(full)));
    ASSERT_TRUE(sys::write_file_atomic(full, text));
  }
  static catalog::Catalog load() {
    auto loaded = catalog::Catalog::load(*folder_ + "/cat", *folder_ + "/cat/share");
    EXPECT_TRUE(loaded.has_value()) << loaded.error().to_string();
    return std::move(*loaded);
  }
  static std::unique_ptr<ImageStore> open(const catalog::Catalog& catalog) {
    return *ImageStore::open(
        catalog, {*folder_ + "/store", wheels(), *folder_ + "/cat", *folder_ + "/cat/share"});
  }
  static std::string digest_of(const catalog::Catalog& catalog, const std::string& variant) {
    const catalog::Image* image = *catalog.image("mini");
    for (const auto& one : image->variants) {
      if (one.id == variant) return one.digest;
    }
    return "";
  }
  static Status ensure(const std::string& variant) {
    const catalog::Catalog catalog = load();
    return open(catalog)->ensure("mini", variant, digest_of(catalog, variant));
  }

  static std::string* folder_;
};
std::string* ImageStoreTest::folder_ = nullptr;

// First of all, so that the base is not there yet.
TEST_F(ImageStoreTest, AKillInTheMiddleEndsWhatRunsAndFetchedPackagesAreKept) {
  const catalog::Catalog catalog = load();
  const std::string base = *folder_ + "/store/" + (*catalog.layer("base"))->digest;
  const pid_t child = ::fork();
  if (child == 0) {
    (void)ensure("good");
    ::_exit(0);
  }
  const auto debs = [&] {
    const auto names = sys::list_folder(base + "/debs");
    return names ? names->size() : 0;
  };
  for (int i = 0; i < 6000 && debs() < 5; ++i) ::usleep(20'000);
  ASSERT_GE(debs(), 5u) << "debootstrap never came to its packages";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto count_running = [&] {
    int count = 0;
    const auto pids = sys::list_folder("/proc");
    for (const std::string& pid : *pids) {
      const auto command = sys::read_file("/proc/" + pid + "/cmdline");
      count += command && command->find(base) != std::string::npos ? 1 : 0;
    }
    return count;
  };
  for (int i = 0; i < 100 && count_running() > 0; ++i) ::usleep(50'000);
  EXPECT_EQ(count_running(), 0);
  EXPECT_GE(debs(), 5u);
  const auto table = sys::mount_table();
  for (const auto& entry : *table) EXPECT_FALSE(entry.target.starts_with(*folder_)) << entry.target;
}

TEST_F(ImageStoreTest, BuildsAllKindsOnceWithProgress) {
  const catalog::Catalog catalog = load();
  auto store = open(catalog);
  EXPECT_EQ(store->layer_paths("mini", "good").error().reason, "image_not_ready");
  std::vector<ImageProgress> seen;
  std::atomic<bool> is_done{false};
  std::thread watcher([&] {
    while (!is_done) {
      for (const ImageSeen& one : store->seen()) {
        if (one.variant == "good" && (seen.empty() || seen.back().text != one.progress_text)) {
          seen.push_back({one.progress_percent, one.progress_text});
        }
      }
      ::usleep(20'000);
    }
  });
  const Status ready = store->ensure("mini", "good", digest_of(catalog, "good"));
  is_done = true;
  watcher.join();
  ASSERT_TRUE(ready.has_value()) << ready.error().to_string();
  for (size_t i = 1; i < seen.size(); ++i)
    EXPECT_GE(seen[i].percent, seen[i - 1].percent) << seen[i].text;
  EXPECT_GT(seen.size(), 5u) << "progress in words while it is built";

  const auto layers = store->layer_paths("mini", "good");
  ASSERT_TRUE(layers.has_value());
  ASSERT_EQ(layers->size(), 3u);
  EXPECT_TRUE(sys::exists((*layers)[0] + "/usr/bin/python3"));
  EXPECT_TRUE(sys::is_folder((*layers)[0] + "/workspace"));
  EXPECT_EQ(sys::list_folder((*layers)[0] + "/dev")->size(), 0u);
  const auto beta = sys::read_file((*layers)[1] + "/opt/anychip/env/beta/__init__.py");
  ASSERT_TRUE(beta.has_value());
  EXPECT_TRUE(beta->starts_with("version = '2.0+site'")) << "the site's own build, by its hash";
  EXPECT_TRUE(sys::is_folder((*layers)[1] + "/opt/anychip/env/alpha/__pycache__"))
      << "compiled once, here";
  EXPECT_EQ(sys::list_folder((*layers)[1])->size(), 1u) << "nothing but the prefix";
  EXPECT_EQ(*sys::read_file((*layers)[2] + "/opt/anychip/env/tool.py"), "print('tool')\n");

  const MonoTime begin = RealClock{}.mono_now();
  ASSERT_TRUE(ensure("good").has_value()) << "another process finds it";
  EXPECT_LT((RealClock{}.mono_now() - begin).ms(), 2000);
  for (const ImageSeen& one : open(catalog)->seen())
    EXPECT_EQ(one.is_ready, one.variant == "good" || one.variant == "files");
}

TEST_F(ImageStoreTest, LayersOfOnePrefixAddUp) {
  ASSERT_TRUE(ensure("more").has_value());
  const catalog::Catalog catalog = load();
  const auto layers = open(catalog)->layer_paths("mini", "more");
  const std::string common = "/opt/anychip/env/common/";
  EXPECT_TRUE(sys::exists((*layers)[1] + common + "alpha.py"));
  EXPECT_TRUE(sys::exists((*layers)[1] + common + "beta.py"));
  EXPECT_TRUE(sys::exists((*layers)[2] + common + "eta.py"))
      << "pip leaves out folders that are there already";
  EXPECT_FALSE(sys::exists((*layers)[2] + common + "alpha.py"));
  char value[8];
  const std::string prefix = (*layers)[2] + "/opt/anychip/env";
  EXPECT_LT(::lgetxattr(prefix.c_str(), "trusted.overlay.opaque", value, sizeof value), 0)
      << "would hide the layer below";
}

TEST_F(ImageStoreTest, TheInstallSeesNothingOfTheHost) {
  ASSERT_TRUE(ensure("good").has_value());
  write("good.txt",
        pin("alpha", "1.0", digest("alpha-1.0")));  // another digest: not the layer above
  const Status ready = ensure("probe");
  ASSERT_TRUE(ready.has_value()) << ready.error().to_string();
  const catalog::Catalog catalog = load();
  const auto layers = open(catalog)->layer_paths("mini", "probe");
  const auto text = sys::read_file(layers->back() + "/opt/anychip/env/probe.json");
  ASSERT_TRUE(text.has_value());
  const auto value = json::parse(*text);
  const json::object& seen = value->get_object();
  EXPECT_EQ(json::string_at(seen, "capabilities"), std::string(32, '0')) << *text;
  EXPECT_EQ(json::string_at(seen, "no_new_privileges"), "1");
  EXPECT_EQ(json::serialize(json::array_at(seen, "interfaces")), "[\"lo\"]");
  EXPECT_EQ(json::serialize(json::array_at(seen, "dev")), "[\"null\",\"urandom\",\"zero\"]");
  EXPECT_EQ(json::array_at(seen, "processes").size(), 1u);
  for (const char* word : {"wheels_read_only", "network_refused", "mount_refused"})
    EXPECT_TRUE(json::bool_at(seen, word)) << word;
  EXPECT_EQ(text->find("work"), text->find("workspace")) << "no folder of the host";
  EXPECT_LE(json::int_at(seen, "files"), 5);
}

TEST_F(ImageStoreTest, FailuresAreOneClearSentence) {
  ASSERT_TRUE(ensure("good").has_value());
  const Status bad = ensure("bad");
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().reason, "wheel_hash_mismatch");
  EXPECT_NE(bad.error().message.find("alpha 1.0"), std::string::npos) << bad.error().message;
  EXPECT_EQ(ensure("absent").error().reason, "wheel_unavailable");
  ::unsetenv("PIP_NO_INDEX");
  ::setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple", 1);
  ::setenv("PIP_RETRIES", "1", 1);
  const Status offline = ensure("absent");
  ::unsetenv("PIP_INDEX_URL");
  ::unsetenv("PIP_RETRIES");
  EXPECT_EQ(offline.error().reason, "network_missing") << offline.error().message;
  EXPECT_NE(offline.error().message.find("gamma 1.0"), std::string::npos);
  const catalog::Catalog catalog = load();
  EXPECT_EQ(open(catalog)->ensure("mini", "good", std::string(64, '0')).error().reason,
            "image_digest_mismatch");
  EXPECT_EQ(open(catalog)->ensure("mini", "nope", "").error().reason, "variant_missing");
}

TEST_F(ImageStoreTest, AKilledBuildGoesOnAndLeavesNothing) {
  ASSERT_TRUE(ensure("good").has_value());
  int round = 0;
  for (const char* point :
       {"image.wheel.fetched", "image.pip.gathered", "image.layer.built", "image.layer.renamed"}) {
    // A wheel of its own per round, so that the layer is a new one.
    const std::string version = fmt::format("3.{}", ++round);
    make_wheel("delta", version);
    write("good.txt", pin("alpha", "1.0", digest("alpha-1.0")) +
                          pin("delta", version, digest("delta-" + version)));
    const pid_t child = ::fork();
    if (child == 0) {
      (void)failpoint::arm(fmt::format("{}=kill", point));
      (void)ensure("good");
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << point;
    const Status ready = ensure("good");
    ASSERT_TRUE(ready.has_value()) << point << ": " << ready.error().to_string();
    const catalog::Catalog catalog = load();
    const auto layers = open(catalog)->layer_paths("mini", "good");
    EXPECT_TRUE(sys::exists((*layers)[1] + "/opt/anychip/env/delta/__init__.py"));
    EXPECT_FALSE(sys::exists(sys::parent_of((*layers)[1]) + "/build"));
    const auto cached = sys::list_folder(wheels());
    for (const std::string& name : *cached) EXPECT_FALSE(name.starts_with(".fetch-")) << point;
  }
}

TEST_F(ImageStoreTest, TwoProcessesBuildALayerOnce) {
  ASSERT_TRUE(ensure("good").has_value());
  make_wheel("epsilon", "1.0");
  write("good.txt", pin("epsilon", "1.0", digest("epsilon-1.0")));
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(ensure("good").has_value() ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(ImageStoreTest, CancelEndsABuild) {
  ASSERT_TRUE(ensure("good").has_value());
  make_wheel("zeta", "1.0");
  write("good.txt", pin("zeta", "1.0", digest("zeta-1.0")));
  const catalog::Catalog catalog = load();
  auto store = open(catalog);
  store->cancel();
  EXPECT_EQ(store->ensure("mini", "good", digest_of(catalog, "good")).error().reason, "cancelled");
  ASSERT_TRUE(ensure("good").has_value());
}

}  // namespace
}  // namespace anychip::agent
