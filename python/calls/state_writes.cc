#include "python/calls/state_writes.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "device/copies.h"
#include "session/autograd/result_node.h"

namespace rekindle::python {

void write_outputs(const StateWrites& writes, const std::vector<at::Tensor>& written,
                   const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& outputs) {
  TORCH_CHECK(outputs.size() >= written.size(), "a graph writes more than it computes");
  for (std::size_t i = 0; i < written.size(); ++i) {  // an error of one comes before all writes
    if (std::ranges::find(writes.silent, i) == writes.silent.end())
      torch::autograd::impl::bump_version(written[i]);
  }
  const auto count = static_cast<std::ptrdiff_t>(written.size());
  try {
    device::copy_all(written, {outputs.end() - count, outputs.end()});
    session::refuse_later_writes(outputs, writes.saved, written);
  } catch (...) {
    write_back(written, before);
    throw;
  }
}

void write_back(const std::vector<at::Tensor>& written, const std::vector<at::Tensor>& before) {
  device::copy_all(written, before);
}

}  // namespace rekindle::python
