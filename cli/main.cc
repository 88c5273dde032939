// The `rekindle` program.
#include <cstdio>
#include <exception>

#include "cli/program.h"

int main(int argc, char** argv) {
  try {
    return rekindle::cli::Program().run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rekindle: %s\n", e.what());
    return rekindle::cli::kExitProblem;
  }
}
