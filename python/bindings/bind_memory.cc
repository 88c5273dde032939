// The account of a plan's memory. No logic here.
#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "session/plan/memory_account.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_memory(py::module_& m) {
  using namespace session;
  py::enum_<MemoryUse>(m, "MemoryUse")
      .value("intermediate", MemoryUse::kIntermediate)
      .value("saved", MemoryUse::kSaved)
      .value("scratch", MemoryUse::kScratch)
      .value("result", MemoryUse::kResult)
      .value("gradient", MemoryUse::kGradient);
  py::class_<AccountedValue>(m, "AccountedValue")
      .def_readonly("name", &AccountedValue::name)
      .def_readonly("op", &AccountedValue::op)
      .def_readonly("source", &AccountedValue::source)
      .def_readonly("use", &AccountedValue::use)
      .def_readonly("saved", &AccountedValue::saved)
      .def_readonly("bytes", &AccountedValue::bytes)
      .def_readonly("offset", &AccountedValue::offset)
      .def_readonly("first", &AccountedValue::first)
      .def_readonly("last", &AccountedValue::last);
  py::class_<UncountedValue>(m, "UncountedValue")
      .def_readonly("name", &UncountedValue::name)
      .def_readonly("op", &UncountedValue::op)
      .def_readonly("source", &UncountedValue::source)
      .def_readonly("use", &UncountedValue::use)
      .def_readonly("saved", &UncountedValue::saved);
  py::class_<PhaseMemory>(m, "PhaseMemory")
      .def_readonly("instructions", &PhaseMemory::instructions)
      .def_readonly("live_peak", &PhaseMemory::live_peak)
      .def_readonly("live_peak_at", &PhaseMemory::live_peak_at)
      .def_readonly("outside_peak", &PhaseMemory::outside_peak);
  py::class_<BudgetAccount>(m, "BudgetAccount")
      .def_readonly("bytes", &BudgetAccount::bytes)
      .def_readonly("without", &BudgetAccount::without)
      .def_readonly("instructions", &BudgetAccount::instructions)
      .def_readonly("share", &BudgetAccount::share);
  py::class_<SubgraphKind>(m, "SubgraphKind")
      .def_readonly("kind", &SubgraphKind::kind)
      .def_readonly("source", &SubgraphKind::source)
      .def_readonly("count", &SubgraphKind::count)
      .def_readonly("recomputed", &SubgraphKind::recomputed)
      .def_readonly("bytes", &SubgraphKind::bytes)
      .def_readonly("share", &SubgraphKind::share);
  py::class_<MemoryAccount>(m, "MemoryAccount")
      .def_readonly("arena_bytes", &MemoryAccount::arena_bytes)
      .def_readonly("constant_bytes", &MemoryAccount::constant_bytes)
      .def_readonly("cotangent_bytes", &MemoryAccount::cotangent_bytes)
      .def_readonly("activation_bytes", &MemoryAccount::activation_bytes)
      .def_readonly("budget", &MemoryAccount::budget)
      .def_readonly("forward", &MemoryAccount::forward)
      .def_readonly("backward", &MemoryAccount::backward)
      .def_readonly("values", &MemoryAccount::values)
      .def_readonly("uncounted", &MemoryAccount::uncounted)
      .def_readonly("subgraphs", &MemoryAccount::subgraphs);
}

}  // namespace rekindle::python
