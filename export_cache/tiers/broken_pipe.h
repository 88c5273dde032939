// BrokenPipeIgnored: a write to a connection that the other side has closed is an error here, as of EPIPE,
// and no signal that ends the process, whatever the user's program does about SIGPIPE. For the scope and its
// thread.
#pragma once

#include <csignal>
#include <ctime>

namespace rekindle {

class BrokenPipeIgnored {
 public:
  BrokenPipeIgnored() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BrokenPipeIgnored() {
    constexpr timespec kNow{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &kNow) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipeIgnored(const BrokenPipeIgnored&) = delete;
  BrokenPipeIgnored& operator=(const BrokenPipeIgnored&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace rekindle
