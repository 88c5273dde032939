#include "python/process/collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rekindle::python {
namespace {

using Tensors = std::vector<at::Tensor>;

// The key that a thread includes to answer by itself. No operator has a kernel for it but those below, and a
// fallthrough costs nothing.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

class Done : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
    future->markCompleted();
    return future;
  }
};

// The arguments of one collective.
class Asked {
 public:
  Asked(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments)
      : schema_(schema),
        arguments_(arguments),
        group_(of("process_group").toCustomClass<c10d::ProcessGroup>()) {}

  const c10::IValue& operator[](std::size_t i) const { return arguments_[i]; }
  Tensors tensors(std::size_t i) const {
    return arguments_[i].isTensor() ? Tensors{arguments_[i].toTensor()} : arguments_[i].toTensorVector();
  }
  std::vector<Tensors> lists(std::size_t i) const {
    std::vector<Tensors> lists;
    for (const c10::IValue& list : arguments_[i].toListRef()) lists.push_back(list.toTensorVector());
    return lists;
  }
  std::vector<std::int64_t> sizes(std::size_t i) const { return arguments_[i].toIntVector(); }
  std::size_t rank() const { return static_cast<std::size_t>(group_->getRank()); }
  std::size_t ranks() const { return static_cast<std::size_t>(group_->getSize()); }
  bool is_root() const { return of("root_rank").toInt() == group_->getRank(); }

  // Makes of `tensor` what the reduction makes of one such tensor of each rank.
  void reduce(const at::Tensor& tensor) const {
    const auto count = static_cast<std::int64_t>(ranks());
    switch (of("reduce_op").toCustomClass<c10d::ReduceOp>()->op_) {
      case c10d::ReduceOp::SUM:
      case c10d::ReduceOp::PREMUL_SUM:  // its factor is left out, the same one in every run
        tensor.mul_(count);
        break;
      case c10d::ReduceOp::PRODUCT:
        tensor.pow_(count);
        break;
      case c10d::ReduceOp::BXOR:
        if (count % 2 == 0) tensor.zero_();
        break;
      default:  // the least, the greatest, the mean, bits of equal tensors
        break;
    }
  }

 private:
  const c10::IValue& of(const char* name) const {
    const auto place = schema_.argumentIndexWithName(name);
    TORCH_CHECK_NOT_IMPLEMENTED(place.has_value(), schema_.name(), " has no argument ", name);
    return arguments_[static_cast<std::size_t>(*place)];
  }

  const c10::FunctionSchema& schema_;
  c10::ArrayRef<c10::IValue> arguments_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

// What nobody has sent.
void fill(const at::Tensor& tensor) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) {
    tensor.zero_();
    return;
  }
  const at::Tensor numbers = at::arange(tensor.numel(), tensor.options().dtype(at::kFloat));
  tensor.copy_((numbers.remainder(7) * 0.125 + 0.5).view(tensor.sizes()));
}

// Fills `into` with the elements of `from`, again and again.
void repeat(const at::Tensor& into, const at::Tensor& from) {
  if (from.numel() == 0) return fill(into);
  const at::Tensor places = at::arange(into.numel(), into.options().dtype(at::kLong)).remainder(from.numel());
  into.copy_(from.reshape({-1}).index_select(0, places).view(into.sizes()));
}

at::Tensor part_of(const at::Tensor& whole, std::size_t part, std::size_t parts) {
  return whole.reshape({-1}).chunk(static_cast<std::int64_t>(parts)).at(part);
}

void all_gather(const Asked& asked) {
  const auto outputs = asked.lists(0);
  const Tensors inputs = asked.tensors(1);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const at::Tensor& output : outputs[i]) output.copy_(inputs.at(i));
  }
}

void all_gather_coalesced(const Asked& asked) {
  const Tensors inputs = asked.tensors(1);
  for (const Tensors& of_rank : asked.lists(0)) {
    for (std::size_t i = 0; i < of_rank.size(); ++i) of_rank[i].copy_(inputs.at(i));
  }
}

void all_gather_into(const Asked& asked) {
  const Tensors outputs = asked.tensors(0), inputs = asked.tensors(1);
  for (std::size_t i = 0; i < outputs.size(); ++i) repeat(outputs[i], inputs.at(i));
}

void all_reduce(const Asked& asked) {
  for (const at::Tensor& tensor : asked.tensors(0)) asked.reduce(tensor);
}

void reduce(const Asked& asked) {
  if (asked.is_root()) all_reduce(asked);
}

void reduce_scatter(const Asked& asked) {
  const Tensors outputs = asked.tensors(0);
  const auto inputs = asked.lists(1);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].copy_(inputs.at(i).at(asked.rank()));
    asked.reduce(outputs[i]);
  }
}

void reduce_scatter_from(const Asked& asked) {
  const Tensors outputs = asked.tensors(0), inputs = asked.tensors(1);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    repeat(outputs[i], part_of(inputs.at(i), asked.rank(), asked.ranks()));
    asked.reduce(outputs[i]);
  }
}

void gather(const Asked& asked) {
  if (asked.is_root()) all_gather(asked);
}

void scatter(const Asked& asked) {
  const Tensors outputs = asked.tensors(0);
  const auto inputs = asked.lists(1);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (asked.is_root()) {
      outputs[i].copy_(inputs.at(i).at(asked.rank()));
    } else {
      fill(outputs[i]);
    }
  }
}

void all_to_all(const Asked& asked) {
  const Tensors inputs = asked.tensors(1);
  for (const at::Tensor& output : asked.tensors(0)) repeat(output, inputs.at(asked.rank()));
}

Tensors split(const at::Tensor& whole, const std::vector<std::int64_t>& sizes, std::size_t ranks) {
  return sizes.empty() ? whole.chunk(static_cast<std::int64_t>(ranks)) : whole.split_with_sizes(sizes);
}

void all_to_all_single(const Asked& asked) {
  const Tensors inputs = split(asked[1].toTensor(), asked.sizes(4), asked.ranks());
  for (const at::Tensor& output : split(asked[0].toTensor(), asked.sizes(3), asked.ranks()))
    repeat(output, inputs.at(asked.rank()));
}

void receive(const Asked& asked) {
  for (const at::Tensor& tensor : asked.tensors(0)) fill(tensor);
}

void leave(const Asked& /*asked*/) {}

using Answer = std::function<void(const Asked&)>;

const std::map<std::string, Answer>& answers() {
  static const std::map<std::string, Answer> answers = {
      {"_allgather_base_", all_gather_into},
      {"_reduce_scatter_base_", reduce_scatter_from},
      {"allgather_", all_gather},
      {"allgather_coalesced_", all_gather_coalesced},
      {"allgather_into_tensor_coalesced_", all_gather_into},
      {"allreduce_", all_reduce},
      {"allreduce_coalesced_", all_reduce},
      {"alltoall_", all_to_all},
      {"alltoall_base_", all_to_all_single},
      {"barrier", leave},
      {"broadcast_", leave},
      {"gather_", gather},
      {"monitored_barrier_", leave},
      {"recv_", receive},
      {"recv_any_source_", receive},
      {"reduce_", reduce},
      {"reduce_scatter_", reduce_scatter},
      {"reduce_scatter_tensor_coalesced_", reduce_scatter_from},
      {"scatter_", scatter},
      {"send", leave},
  };
  return answers;
}

// A kernel for all collectives. Most return their first argument and what waits for it.
void answer(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto known = answers().find(schema.name().substr(schema.name().find("::") + 2));
  TORCH_CHECK_NOT_IMPLEMENTED(known != answers().end(), schema.name(),
                              " is no collective that an export can answer");
  const c10::IValue first = torch::jit::last(*stack, schema.arguments().size()).front();
  {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // a collective counts no version
    const Asked asked(schema, torch::jit::last(*stack, schema.arguments().size()));
    known->second(asked);
  }
  torch::jit::drop(*stack, schema.arguments().size());
  const std::size_t returns = schema.returns().size();
  if (returns == 2) stack->push_back(first);
  if (returns > 0) stack->emplace_back(c10::intrusive_ptr<c10d::Work>(c10::make_intrusive<Done>()));
}

// Registered when a rank exports first: each registration goes through all operators.
void register_answers() {
  static const auto libraries = [] {
    std::vector<std::unique_ptr<torch::Library>> made;
    const auto library = [&](const char* name) -> torch::Library& {
      made.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, name, kKey, __FILE__, __LINE__));
      return *made.back();
    };
    library("_").fallback(torch::CppFunction::makeFallthrough());
    torch::Library& collectives = library("c10d");
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (name.name.starts_with("c10d::"))
        collectives.impl(name.name.c_str(), torch::CppFunction::makeFromBoxedFunction<&answer>());
    }
    return made;
  }();
}

}  // namespace

bool answer_collectives(bool here) {
  if (here) register_answers();
  const bool before = c10::impl::tls_is_dispatch_key_included(kKey);
  c10::impl::tls_set_dispatch_key_included(kKey, here);
  return before;
}

}  // namespace rekindle::python
