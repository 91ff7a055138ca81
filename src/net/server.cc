#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>

#include "base/check.h"
#include "base/log.h"
#include "net/connection.h"

namespace anychip::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr Duration kDrainMax = seconds(1);
constexpr size_t kRefusedMax = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

Hub::Hub(ServerOptions the_options, Handler the_handler)
    : io(the_options.threads),
      options(std::move(the_options)),
      handler(std::move(the_handler)),
      round_strand_(asio::make_strand(io)),
      round_timer_(io) {}

Hub::Admission Hub::admit(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  if (!is_open_ || refused_ >= kRefusedMax) return Admission::kDrop;
  const bool is_refused = connections_.size() - refused_ >= options.connections_max;
  connections_.emplace(connection.get(), Entry{connection, is_refused});
  refused_ += is_refused ? 1 : 0;
  return is_refused ? Admission::kRefuse : Admission::kServe;
}

void Hub::remove(const Connection* connection) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  refused_ -= found->second.is_refused ? 1 : 0;
  connections_.erase(found);
  if (connections_.empty()) emptied_.notify_all();
}

std::vector<std::shared_ptr<Connection>> Hub::connections() {
  std::vector<std::shared_ptr<Connection>> alive;
  const std::lock_guard lock(mutex_);
  alive.reserve(connections_.size());
  for (const auto& [key, entry] : connections_) {
    if (auto connection = entry.connection.lock()) alive.push_back(std::move(connection));
  }
  return alive;
}

void Hub::wait_until_empty(Duration at_most) {
  std::unique_lock lock(mutex_);
  emptied_.wait_for(lock, std::chrono::microseconds(at_most.us),
                    [this] { return connections_.empty(); });
}

bool Hub::post(const Strand& strand, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!is_open_) return false;
  asio::post(strand, std::move(work));
  return true;
}

void Hub::close_gate() {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
}

void Hub::wake() {
  wakes.fetch_add(1);
  schedule_round();
}

void Hub::schedule_round() {
  if (is_round_scheduled_.exchange(true)) return;
  post(round_strand_, [self = shared_from_this()] { self->arm_round(); });
}

void Hub::arm_round() {
  const Duration left = last_round_ + options.wake_interval - clock_.mono_now();
  if (left.us <= 0) return run_round();
  round_timer_.expires_after(std::chrono::microseconds(left.us));
  round_timer_.async_wait(asio::bind_executor(
      round_strand_, [self = shared_from_this()](ErrorCode) { self->run_round(); }));
}

void Hub::run_round() {
  // Cleared before looking: a wake() that comes from here on schedules a round of its own.
  is_round_scheduled_.store(false);
  last_round_ = clock_.mono_now();
  for (const auto& connection : connections()) {
    if (connection->is_waiting()) connection->wake();
  }
}

namespace {

class ServerImpl final : public Server {
 public:
  explicit ServerImpl(std::shared_ptr<Hub> hub)
      : hub_(std::move(hub)),
        work_(asio::make_work_guard(hub_->io)),
        accept_strand_(asio::make_strand(hub_->io)),
        acceptor_(accept_strand_),
        pause_(accept_strand_) {}

  ~ServerImpl() override {
    for (const std::thread& thread : threads_) {
      CHECK_MSG(thread.get_id() != std::this_thread::get_id(), "a server ended by its own thread");
    }
    asio::post(accept_strand_, [this] {
      ErrorCode ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    for (const auto& connection : hub_->connections()) connection->drain();
    hub_->wait_until_empty(kDrainMax);
    hub_->close_gate();
    for (const auto& connection : hub_->connections()) connection->close();
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    hub_->handler = nullptr;
  }

  Status bind() {
    const ServerOptions& options = hub_->options;
    ErrorCode problem;
    const auto address = asio::ip::make_address(options.address, problem);
    if (problem) {
      return fail(Code::kInvalidArgument, "address_invalid",
                  fmt::format("'{}' is not an IP address to listen on", options.address),
                  "use 127.0.0.1 for this machine only, 0.0.0.0 for every network");
    }
    acceptor_.open(address.is_v6() ? tcp::v6() : tcp::v4(), problem);
    if (!problem) acceptor_.set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem) acceptor_.bind({address, options.port}, problem);
    if (!problem) acceptor_.listen(asio::socket_base::max_listen_connections, problem);
    if (problem) return bind_error(problem);
    port_ = acceptor_.local_endpoint(problem).port();
    return {};
  }

  void run() {
    asio::post(accept_strand_, [this] { accept(); });
    for (int i = 0; i < hub_->options.threads; ++i) {
      threads_.emplace_back([this] { run_thread(); });
    }
  }

  uint16_t port() const override { return port_; }
  void wake() override { hub_->wake(); }

 private:
  using StrandSocket = tcp::socket::rebind_executor<Strand>::other;

  tl::unexpected<Error> bind_error(const ErrorCode& problem) const {
    const ServerOptions& options = hub_->options;
    if (problem == asio::error::address_in_use) {
      return fail(Code::kFailedPrecondition, "port_in_use",
                  fmt::format("port {} of {} is in use", options.port, options.address),
                  fmt::format("choose another with --port, or see who holds it: "
                              "ss -ltnp 'sport = :{}'",
                              options.port));
    }
    if (problem == asio::error::access_denied) {
      return fail(Code::kPermissionDenied, "port_forbidden",
                  fmt::format("port {} may not be opened by this user", options.port),
                  "choose a port above 1023");
    }
    return fail(Code::kInternal, "listen_failed",
                fmt::format("cannot listen on {}:{}: {}", options.address, options.port,
                            problem.message()));
  }

  void run_thread() {
    for (;;) {
      try {
        hub_->io.run();
        return;
      } catch (const std::exception& problem) {  // bad_alloc and the like: one connection, not all
        log::error("net.thread_exception", {{"what", problem.what()}});
      }
    }
  }

  void accept() {
    const Strand strand = asio::make_strand(hub_->io);
    acceptor_.async_accept(strand, [this, strand](ErrorCode problem, StrandSocket socket) {
      on_accept(problem, strand, std::move(socket));
    });
  }

  void on_accept(ErrorCode problem, const Strand& strand, StrandSocket socket) {
    if (!acceptor_.is_open()) return;
    if (problem) {
      // Out of descriptors or a connection reset in the queue: try again, never in a tight loop.
      pause_.expires_after(kAcceptPause);
      pause_.async_wait([this](ErrorCode stopped) {
        if (!stopped) accept();
      });
      return;
    }
    ErrorCode ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto connection = std::make_shared<Connection>(tcp::socket(std::move(socket)), strand, hub_);
    const Hub::Admission admission = hub_->admit(connection);
    if (admission == Hub::Admission::kServe) {
      asio::post(strand, [connection] { connection->start(); });
    } else if (admission == Hub::Admission::kRefuse) {
      asio::post(strand, [connection] { connection->refuse(); });
    }
    accept();
  }

  const std::shared_ptr<Hub> hub_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  const Strand accept_strand_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Handler handler) {
  CHECK(options.threads > 0);
  CHECK(handler != nullptr);
  auto hub = std::make_shared<Hub>(std::move(options), std::move(handler));
  auto server = std::make_unique<ServerImpl>(std::move(hub));
  TRY_VOID(server->bind());
  server->run();
  return server;
}

}  // namespace anychip::net
