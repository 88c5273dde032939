// Lease: the right to make what is missing under one key, held by one process of a machine at a time.
//
//   <dir>/inflight/<key>     flock of the holder; its text: the holder's pid and "busy" or "open"
//
// The kernel releases the lock when its holder dies. A holder that lives touches the file every second, so
// that one that was stopped, or whose descriptor lives on in a forked child, is not waited for. Waiting is a
// courtesy: publishing is idempotent, so whoever gives up waiting may make the same thing again.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

enum class LeaseState {
  kHeld,     // by this object
  kWaiting,  // another process holds it and is alive
  kOpen,     // the holder let all others go on without it
  kSilent,   // the holder has not been heard of for LeaseOptions::silence
};
// "held", "waiting", "open", "silent".
const char* lease_state_name(LeaseState state);

struct LeaseOptions {
  std::chrono::milliseconds heartbeat{1'000};
  std::chrono::milliseconds silence{10'000};
};

// Used by one thread. Dropping it releases the lease.
class Lease {
 public:
  // `dir` is the cache directory. Takes nothing yet.
  Lease(const std::string& dir, const Digest& key, LeaseOptions options = {});
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Waits at most `slice` for the lease. After any state but kWaiting it returns the same state at once.
  // kIo when the lock file cannot be made or locked.
  Result<LeaseState> wait(std::chrono::milliseconds slice);
  // Of the holder that was waited for last; 0 when unknown.
  int holder() const { return holder_; }
  // Whether another process held the lease when this object first asked.
  bool waited() const { return waited_; }
  // Lets all others go on: this process makes nothing that they can use, or cannot go on without them.
  // Without effect unless held.
  Status open();
  // Ends the lease; what this process made is visible by now. Without effect unless held.
  void release();

 private:
  class Held;

  Result<LeaseState> poll();
  LeaseState watch();

  const std::string path_;
  const LeaseOptions options_;
  std::unique_ptr<Held> held_;
  LeaseState state_ = LeaseState::kWaiting;
  bool waited_ = false;
  int holder_ = 0;
  std::string last_beat_;
  std::chrono::steady_clock::time_point heard_;
};

}  // namespace rekindle
