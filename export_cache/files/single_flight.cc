#include "export_cache/files/single_flight.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "export_cache/files/file_lock.h"

namespace rekindle {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{20};

struct Note {
  int pid = 0;
  bool open = false;
};

// A note that cannot be read or is half-written says nothing.
Note read_note(const std::string& path) {
  std::ifstream file(path);
  Note note;
  std::string word;
  if (file >> note.pid >> word) note.open = word == "open";
  return note;
}

Status write_note(const std::string& path, const char* word) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
  const std::string text = std::to_string(getpid()) + " " + word + "\n";
  const bool written = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  return written ? Status() : io_error("cannot write " + path + ": " + std::strerror(error));
}

// What changes whenever the holder beats, opens or ends the lease.
std::string beat_of(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return "gone";
  return std::to_string(info.st_ino) + " " + std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec);
}

}  // namespace

const char* lease_state_name(LeaseState state) {
  constexpr const char* kNames[] = {"held", "waiting", "open", "silent"};
  return kNames[static_cast<int>(state)];
}

// The lock, and the thread that touches its file.
class Lease::Held {
 public:
  Held(std::string path, FileLock lock, std::chrono::milliseconds heartbeat)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        pid_(getpid()),
        beats_([this, heartbeat] { beat(heartbeat); }) {}

  ~Held() {
    {
      const std::lock_guard guard(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    beats_.join();
    // An opened lease keeps its file, which tells those who wait that there is nothing to wait for.
    if (!read_note(path_).open) ::unlink(path_.c_str());
  }

  bool owned() const { return getpid() == pid_; }

 private:
  void beat(std::chrono::milliseconds every) {
    std::unique_lock guard(mutex_);
    while (!wake_.wait_for(guard, every, [this] { return done_; })) {
      utimensat(AT_FDCWD, path_.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    }
  }

  const std::string path_;
  const FileLock lock_;
  const pid_t pid_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread beats_;  // last: it uses the others
};

Lease::Lease(const std::string& dir, const Digest& key, LeaseOptions options)
    : path_(dir + "/inflight/" + key.hex()), options_(options), heard_(Clock::now()) {}

Lease::~Lease() { release(); }

Result<LeaseState> Lease::wait(std::chrono::milliseconds slice) {
  const auto deadline = Clock::now() + slice;
  while (state_ == LeaseState::kWaiting) {
    REKINDLE_ASSIGN_OR_RETURN(state_, poll());
    if (state_ != LeaseState::kWaiting || Clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::min<Clock::duration>(kPause, deadline - Clock::now()));
  }
  return state_;
}

Result<LeaseState> Lease::poll() {
  std::error_code ignored;  // a directory that cannot be made shows as a file that cannot be opened
  const std::filesystem::path directory = std::filesystem::path(path_).parent_path();
  if (std::filesystem::create_directory(directory, ignored)) ::chmod(directory.c_str(), 0700);
  REKINDLE_ASSIGN_OR_RETURN(std::optional<FileLock> lock,
                            FileLock::try_acquire(path_, FileLock::Kind::kExclusive));
  if (!lock) return watch();
  if (waited_ && read_note(path_).open) return LeaseState::kOpen;
  REKINDLE_RETURN_IF_ERROR(write_note(path_, "busy"));
  held_ = std::make_unique<Held>(path_, *std::move(lock), options_.heartbeat);
  return LeaseState::kHeld;
}

LeaseState Lease::watch() {
  const Note note = read_note(path_);
  waited_ = true;
  if (note.pid != 0) holder_ = note.pid;
  if (note.open) return LeaseState::kOpen;
  if (std::string beat = beat_of(path_); beat != last_beat_) {
    last_beat_ = std::move(beat);
    heard_ = Clock::now();
  }
  return Clock::now() - heard_ > options_.silence ? LeaseState::kSilent : LeaseState::kWaiting;
}

Status Lease::open() {
  if (!held_ || !held_->owned()) return {};
  return write_note(path_, "open");
}

void Lease::release() {
  // A forked child has neither the thread nor the right to unlock: it leaves both alone.
  if (held_ && !held_->owned()) (void)held_.release();
  held_.reset();
}

}  // namespace rekindle
