// ForkGuard: keeps a forked child from hanging in RocksDB.
//
// Its mutexes may be held at that moment, by threads that the child has not. So a child uses no database when
// a call was under way in the parent as it forked. Threads of RocksDB's that a call leaves: job_env.h.
#pragma once

#include "src/base/result.h"

namespace rekindle {

class ForkGuard {
 public:
  // kUnsupported when this process must not use RocksDB. Held during the use.
  static Result<ForkGuard> enter();

  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&&) = delete;
  ~ForkGuard();

 private:
  ForkGuard() = default;
  bool held_ = true;
};

}  // namespace rekindle
