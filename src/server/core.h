// The server's logic without sockets or threads of its own: requests in, answers out, and a tick.
// `anychip server` drives it from net::Server and the real clock; sim/ drives the same object from a
// virtual clock and simulated messages.
#pragma once

#include <memory>
#include <string>

#include "base/rng.h"
#include "base/time.h"
#include "catalog/catalog.h"
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

struct CoreOptions {
  std::string admin_token;  // creates accounts
  std::string join_token;   // enrols agents
  Duration node_lost_after = seconds(30);
  Duration checkpoint_grace = seconds(120);
};

// All references outlive the Core.
struct CoreParts {
  store::Store& store;
  const catalog::Catalog& catalog;
  const Clock& clock;
  Random& random;
  Blobs& blobs;
};

const store::Migrations& migrations();

class Core {
 public:
  static std::unique_ptr<Core> create(CoreParts parts, CoreOptions options);
  virtual ~Core() = default;
  // A net::Handler: reads go to Store::read, changes to Store::submit, long polls come back as Waiting.
  virtual void handle(net::Request request, bool is_last_try, net::Done done) = 0;
  // Reconciles: time limits, lost nodes, the next step of every run and switch. Call at least 4 times a
  // second; it does nothing when nothing is due.
  virtual void tick() = 0;
};

}  // namespace anychip::server
