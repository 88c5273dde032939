#include "device/cpu_allocator.h"
#include "session/lower/tensor_types.h"
#include "session/plan/budget.h"
#include "session/plan/fuse_pointwise.h"
#include "session/plan/stages.h"

namespace rekindle::session {
namespace {

std::shared_ptr<const Plan> planned(const PlanRequest& request) {
  if (request.device.is_cpu()) device::CpuAllocator::install();
  Fitted fitted = fit_budget(request, claim_results(request, lower_graph(request)));
  PlanRequest rest = request;
  rest.kept = &fitted.kept;
  Plan plan = schedule(rest, place_slots(rest, fuse_pointwise(rest, {std::move(fitted.programs)})));
  plan.recomputation = std::move(fitted.recomputation);
  plan.joint = request.joint;
  plan.present = request.present;
  plan.device = request.device;
  for (const at::Tensor& input : request.inputs) plan.input_metas.push_back(meta_of(input));
  return std::make_shared<const Plan>(std::move(plan));
}

}  // namespace

std::vector<std::int32_t> last_uses(Programs& programs, const KeptValues& kept) {
  const std::vector<Instruction*> timeline = programs.timeline();
  std::vector<std::int32_t> last(programs.slots.size(), -1);
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    for (const auto* slots : {&timeline[i]->inputs, &timeline[i]->outputs}) {
      for (const SlotId slot : *slots) last[programs.root_of(slot)] = static_cast<std::int32_t>(i);
    }
  }
  const auto begin = static_cast<std::int32_t>(programs.forward.instructions.size());
  for (SlotId slot = 1; slot < programs.slots.size(); ++slot) {
    const SlotId root = programs.root_of(slot);
    if (last[root] >= 0 && last[root] < begin && kept.is_read(programs.slots[slot])) last[root] = begin;
  }
  return last;
}

Result<std::shared_ptr<const Plan>> make_plan(const PlanRequest& request) {
  try {
    return planned(request);
  } catch (const c10::NotImplementedError& error) {
    return unsupported(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return invalid_argument(error.what_without_backtrace());
  }
}

}  // namespace rekindle::session
