// ForkGuard: keeps a forked child from hanging in RocksDB.
//
// RocksDB's background threads do not survive a fork and its mutexes may be held at that moment.
// So a child refuses writes when its parent had written, and everything when a call was under
// way in the parent as it forked.
#pragma once

#include "src/base/result.h"

namespace rekindle {

class ForkGuard {
 public:
  enum class Use { kRead, kWrite };

  // kUnsupported when this process must not use RocksDB in that way. Held during the use.
  static Result<ForkGuard> enter(Use use);

  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&&) = delete;
  ~ForkGuard();

 private:
  ForkGuard() = default;
  bool held_ = true;
};

}  // namespace rekindle
