// Compiles kernels of src/fusion by the host's compiler, and runs them on the test device: the same source as
// a GPU's. Internal to tests/device.
//
// Threads run one after the other. A load or a store that is not aligned as its type ends the process, as on
// a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rekindle::testing::device {

// Returns the text that takes the place of cuda_language(), before common_language().
const char* host_language();

// Returns a number for launch_kernel(). Throws c10::Error with what the compiler says.
std::int64_t compile_kernel(const std::string& source, const std::string& name);
// A launch on the current stream of the current device; recorded where the thread records.
void launch_kernel(std::int64_t kernel, std::int64_t blocks, std::vector<std::int64_t> words);

}  // namespace rekindle::testing::device
