// Child: a hidden test case of this executable, run in a process of its own (fork and exec, so nothing of the
// parent's threads is left in it). It reads its arguments from the environment.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/support/temp_dir.h"

namespace rekindle::testing {

class Child {
 public:
  // `test_case` is its full name; `dir` and `argument` reach it as child_dir() and child_argument().
  // `preload` names a library of this folder that it is to load first.
  Child(const std::string& test_case, const std::string& dir, const std::string& argument = "",
        const char* preload = nullptr) {
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    if (preload != nullptr) setenv("LD_PRELOAD", preload, 1);
    setenv("REKINDLE_TEST_DIR", dir.c_str(), 1);
    setenv("REKINDLE_TEST_ARGUMENT", argument.c_str(), 1);
    const std::string report = report_ / "report";
    execl("/proc/self/exe", "child", test_case.c_str(), "-o", report.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  ~Child() {
    if (pid_ > 0) kill_and_wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // True when every assertion in it held; else its report is printed.
  bool wait_ok() {
    int status = 0;
    REQUIRE(waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    const bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ok) std::cerr << std::ifstream(report_ / "report").rdbuf() << "wait status " << status << std::endl;
    return ok;
  }
  void kill_and_wait() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  TempDir report_;
  pid_t pid_ = -1;
};

inline std::string child_dir() { return std::getenv("REKINDLE_TEST_DIR"); }
inline std::string child_argument() { return std::getenv("REKINDLE_TEST_ARGUMENT"); }

}  // namespace rekindle::testing
