#include "server/main.h"

#include <signal.h>
#include <unistd.h>

#include <mutex>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "server/auth.h"
#include "server/blobs.h"
#include "server/core.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::server {
namespace {

constexpr long kTickNs = 100'000'000;

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

// A secret of this installation: made once, readable by the owner only.
Result<std::string> secret_in(const std::string& path, Random& random) {
  auto known = sys::read_file(path);
  if (known) {
    const std::string text = trimmed(std::move(*known));
    if (!text.empty()) return text;
  } else if (known.error().code != Code::kNotFound) {
    return tl::unexpected(std::move(known).error());
  }
  const std::string secret = make_secret(random);
  FAILPOINT("server.secret.make");
  TRY_VOID(sys::write_file_durable(path, secret + "\n", 0600));
  return secret;
}

// SIGTERM and SIGINT are taken by the loop below and by no thread: blocked before any is started.
sigset_t block_stop_signals() {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  CHECK(pthread_sigmask(SIG_BLOCK, &stops, nullptr) == 0);
  (void)signal(SIGPIPE, SIG_IGN);
  return stops;
}

Status write_server_file(const std::string& folder, uint16_t port) {
  const json::object file{{"pid", ::getpid()}, {"port", port}};
  return sys::write_file_durable(folder + "/server.json", json::serialize(file) + "\n", 0644);
}

// A commit wakes those who wait, as long as there is a server to wait at.
class Waker {
 public:
  explicit Waker(net::Server* server) : server_(server) {}
  void wake() {
    const std::lock_guard lock(mutex_);
    if (server_ != nullptr) server_->wake();
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    server_ = nullptr;
  }

 private:
  std::mutex mutex_;
  net::Server* server_;
};

void tick_until_stopped(Core& core, const sigset_t& stops) {
  const timespec pause{0, kTickNs};
  while (true) {
    const int got = sigtimedwait(&stops, nullptr, &pause);
    if (got == SIGTERM || got == SIGINT) {
      log::info("server.stopping", {{"signal", got}});
      return;
    }
    core.tick();
  }
}

}  // namespace

Result<int> run_server(const ServerMainOptions& options) {
  failpoint::arm_from_environment();
  const sigset_t stops = block_stop_signals();
  RealClock clock;
  SecureRandom random;
  std::string root = options.installation_root;
  if (root.empty()) {
    TRY(root, sys::installation_root());
  }
  const std::string share = options.share.empty() ? root + "/build" : options.share;
  const std::string folder = options.data + "/server";
  TRY_VOID(sys::make_folders(folder + "/workdirs", 0700));
  auto lock = sys::FileLock::try_acquire(folder + "/server.lock");
  if (!lock) {
    return fail(Code::kAborted, "server_running", "a server of this data folder runs already",
                "`anychip down` ends it; another data folder is chosen with ANYCHIP_DATA");
  }
  TRY(const catalog::Catalog catalogue, catalog::Catalog::load(root, share));
  TRY(const auto store, store::Store::open({folder + "/anychip.db", true, 2}, migrations()));
  const auto blobs = open_blobs(folder + "/workdirs");
  const auto workdirs = open_workdirs(root, share, folder + "/workdirs", *blobs);
  CoreOptions core_options;
  TRY(core_options.admin_token, secret_in(folder + "/admin.token", random));
  TRY(core_options.join_token, secret_in(folder + "/join.token", random));
  const auto core = Core::create({*store, catalogue, clock, random, *blobs, workdirs.get()},
                                 std::move(core_options));
  net::ServerOptions listen;
  listen.address = options.address;
  listen.port = options.port;
  TRY(auto server,
      net::Server::start(listen, [&core](net::Request request, bool is_last_try, net::Done done) {
        core->handle(std::move(request), is_last_try, std::move(done));
      }));
  Waker waker{server.get()};
  store->on_commit([&waker] { waker.wake(); });
  TRY_VOID(write_server_file(folder, server->port()));
  log::info("server.listening", {{"address", options.address}, {"port", server->port()}});
  tick_until_stopped(*core, stops);
  store->drain();
  waker.forget();  // what is still in work commits, but wakes nobody
  server.reset();
  store->drain();
  log::info("server.stopped");
  return 0;
}

}  // namespace anychip::server
