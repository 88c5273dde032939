// The `rekindle` program.
#include <cstdio>
#include <exception>
#include <iostream>

#include "cli/program.h"

namespace {

// What was printed may not be there: the disk of a file is full, or nobody reads a pipe any more.
int printed(int code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return code;
  std::fprintf(stderr, "rekindle: the output cannot be written; is the disk full?\n");
  return code == rekindle::cli::kExitOk ? rekindle::cli::kExitProblem : code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return printed(rekindle::cli::Program().run(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rekindle: %s\n", e.what());
    return rekindle::cli::kExitProblem;
  }
}
