// RedisServer: a Redis on this machine, for the tests of tiers: redis-server where it is installed, and a few
// of its commands where it is not.
#pragma once

#include <memory>
#include <string>

namespace rekindle::testing {

class RedisServer {
 public:
  enum class Kind { kInstalled, kOurs };

  static bool is_installed();
  // Listens on a free port of 127.0.0.1, with 16 databases. password: which clients have to give; empty:
  // none.
  explicit RedisServer(Kind kind, std::string password = "");
  ~RedisServer();

  // "127.0.0.1:<port>", to be followed by a database.
  std::string place() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace rekindle::testing
