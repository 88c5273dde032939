#include "session/lower/placed.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "device/operator_memory.h"
#include "session/lower/plan_mismatch.h"
#include "session/lower/settled.h"
#include "src/base/mutex.h"

namespace rekindle::session {
namespace {

using device::OperatorMemory;
using Outs = std::vector<const at::Tensor*>;

bool fits(const at::Tensor& tensor, const Layout& planned) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.scalar_type() == planned.dtype &&
         tensor.sizes() == planned.sizes;
}

// Leaves results undefined that nothing reads and that are not as planned.
void check(Tensors& results, const std::vector<Layout>& planned, const std::vector<bool>& unused,
           const std::string& name) {
  if (results.size() != planned.size()) {
    throw PlanMismatch(
        c10::str(name, " returned ", results.size(), " tensors where ", planned.size(), " were planned"));
  }
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const bool is_unused = i < unused.size() && unused[i];
    if (is_unused && !fits(results[i], planned[i])) {
      results[i] = at::Tensor();
    } else {
      check_result(results[i], planned[i], name);
    }
  }
}

bool is(const at::Tensor& result, const at::Tensor& out) {
  return result.const_data_ptr() == out.const_data_ptr() && result.strides() == out.strides() &&
         !result.is_conj() && !result.is_neg();
}

bool lies_in(const Outs& outs, const at::Tensor& result) {
  return std::ranges::any_of(
      outs, [&](const at::Tensor* out) { return result.storage().data() == out->storage().data(); });
}

void settle(Tensors results, const Outs& outs) {
  // One output's memory may have another one's result.
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined() && !is(results[i], *outs[i]) && lies_in(outs, results[i]))
      results[i] = results[i].clone();
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) {
      outs[i]->zero_();
    } else if (!is(results[i], *outs[i])) {
      outs[i]->copy_(results[i]);
    }
  }
}

// Which of its allocations an instruction's operator had its results in when it ran last.
class LastTurns {
 public:
  std::vector<int> get() const {
    const std::lock_guard lock(mutex_);
    return turns_;
  }
  void set(std::vector<int> turns) {
    const std::lock_guard lock(mutex_);
    turns_ = std::move(turns);
  }

 private:
  mutable Mutex mutex_;
  std::vector<int> turns_;
};

}  // namespace

bool can_place(at::Device device) { return device.is_cpu(); }

Kernel placed(std::function<Tensors(const Args&)> compute, std::vector<Layout> planned,
              std::vector<bool> unused, std::string name) {
  return [compute = std::move(compute), planned = std::move(planned), unused = std::move(unused),
          name = std::move(name), last = std::make_shared<LastTurns>()](const Args& args) {
    Outs outs;
    for (std::size_t i = 0; i < planned.size(); ++i) outs.push_back(&args.out(i));
    {
      OperatorMemory memory(outs, last->get());
      Tensors results = compute(args);
      memory.close();
      check(results, planned, unused, name);
      last->set(memory.turns_of(results));
      settle(std::move(results), outs);
    }
    for (const at::Tensor* out : outs) {
      TORCH_CHECK(out->numel() == 0 || !device::is_given(out->const_data_ptr()), name,
                  " keeps memory of its results");
    }
  };
}

}  // namespace rekindle::session
