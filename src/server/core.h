// The server's logic without sockets or threads of its own: requests in, answers out, and a tick.
// `anychip server` drives it from net::Server and the real clock; sim/ drives the same object from
// a virtual clock and simulated messages.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "catalog/catalog.h"
#include "fleet/facts.h"
#include "net/http.h"
#include "store/db.h"

namespace anychip::server {

// Uploaded workdirs by content. Implementations: a folder (server/blobs.cc), memory (sim/).
class Blobs {
 public:
  virtual ~Blobs() = default;
  virtual Status put(const std::string& digest, const std::string& bytes) = 0;  // durable on return
  virtual Result<std::string> get(const std::string& digest) = 0;
  virtual bool has(const std::string& digest) = 0;
};

// What the Core cannot do without files: look into an archive, pack a template's folder. Called on
// server threads, never inside a transaction. Without it (sim/): no script check, no template
// folders.
class Workdirs {
 public:
  virtual ~Workdirs() = default;
  // Paths of the files in a tar.zst; "archive_malformed" when it is none.
  virtual Result<std::vector<std::string>> list(const std::string& archive_bytes) = 0;
  // The digest of a template's folder and data, packed into the Blobs at first use.
  virtual Result<std::string> digest_of(const catalog::Template& of) = 0;
};

struct CoreOptions {
  std::string admin_token;  // creates accounts
  std::string join_token;   // enrols agents
  Duration node_lost_after = seconds(30);
  Duration checkpoint_grace = seconds(120);
  Money credit_at_creation{10'000'000};  // ¥10
  Duration funds_ahead = minutes(1);     // a start needs the price of so long
  fleet::Limits limits;                  // stop_grace is set from checkpoint_grace
};

// All references outlive the Core.
struct CoreParts {
  store::Store& store;
  const catalog::Catalog& catalog;
  const Clock& clock;
  Random& random;  // thread-safe when handle() is called from several threads (SecureRandom is)
  Blobs& blobs;
  Workdirs* workdirs = nullptr;
};

const store::Migrations& migrations();

class Core {
 public:
  static std::unique_ptr<Core> create(CoreParts parts, CoreOptions options);
  virtual ~Core() = default;
  // A net::Handler: reads go to Store::read, changes to Store::submit, long polls come back as
  // Waiting.
  virtual void handle(net::Request request, bool is_last_try, net::Done done) = 0;
  // Reconciles: time limits, lost nodes, the next step of every run and switch. Call at least 4
  // times a second; it does nothing when nothing is due.
  virtual void tick() = 0;
};

// The route table as "GET /v1/runs/{run}", for the test that api/openapi.yaml says the same.
std::vector<std::string> route_names();

}  // namespace anychip::server
