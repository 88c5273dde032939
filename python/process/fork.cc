#include "python/process/fork.h"

#include <Python.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace rekindle::python {

namespace {

// Descriptors that are open; those below 1024 where the system does not tell.
std::vector<int> open_descriptors() {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) {
    for (int one = 0; one < 1024; ++one)
      if (fcntl(one, F_GETFD) != -1) found.push_back(one);
    return found;
  }
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') found.push_back(std::atoi(entry->d_name));
  closedir(folder);
  return found;
}

// Numbers stay taken: an object of the parent's that closes its file in the child closes none of the child's.
void leave_files(int kept) {
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nowhere < 0) _exit(1);
  for (const int one : open_descriptors())
    if (one != kept && one != nowhere) dup2(nowhere, one);
}

void step_back(unsigned seconds) {
  setpriority(PRIO_PROCESS, 0, 19);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); file >= 0) {
    if (write(file, "1000", 4) != 4) {
      // The system decides then; nothing else depends on it.
    }
    close(file);
  }
  signal(SIGALRM, SIG_DFL);
  alarm(seconds);
}

}  // namespace

pid_t fork_helper(int kept, unsigned seconds) {
  PyOS_BeforeFork();
  const pid_t child = fork();
  if (child != 0) {
    PyOS_AfterFork_Parent();
    return child;
  }
  leave_files(kept);
  step_back(seconds);
  PyOS_AfterFork_Child();
  return 0;
}

}  // namespace rekindle::python
