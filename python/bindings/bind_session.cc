// Sessions. No logic here.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <optional>

#include "python/bindings/bindings.h"
#include "python/bindings/bound_session.h"
#include "python/bindings/errors.h"
#include "python/bindings/memory_plan.h"
#include "python/bindings/saved_tensors.h"
#include "python/calls/collected.h"
#include "python/calls/result_template.h"
#include "python/calls/served_call.h"
#include "python/calls/size_questions.h"
#include "python/calls/state_writes.h"
#include "python/calls/with_warnings.h"
#include "session/padding/padding_elimination.h"
#include "session/plan/memory_account.h"
#include "session/session.h"
#include "src/pipeline/pipeline.h"

namespace rekindle::python {

namespace py = pybind11;
using session::Session;

namespace {

// As in the contract: [kind, numbers]. Throws what Python sees as
// InvalidArgument for a kind that there is not.
using NamedLayouts = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

std::vector<session::ResultLayout> layouts_of(NamedLayouts&& named) {
  using Kind = session::ResultLayout::Kind;
  static const std::map<std::string, Kind> kinds = {{"any", Kind::kAny},
                                                    {"as computed", Kind::kAsComputed},
                                                    {"order", Kind::kOrder},
                                                    {"strides", Kind::kStrides}};
  std::vector<session::ResultLayout> layouts;
  for (auto& [name, numbers] : named) {
    const auto kind = kinds.find(name);
    if (kind == kinds.end())
      throw RekindleException(invalid_argument("no layout of a result is of kind '" + name + "'"));
    layouts.push_back({kind->second, std::move(numbers)});
  }
  return layouts;
}

// As in the contract: [cotangents, inputs] each.
using SavedGroups = std::optional<std::vector<std::pair<Positions, Positions>>>;

BoundSession make_session(const py::bytes& joint, std::vector<bool> expected_cotangents,
                          NamedLayouts output_layouts, NamedLayouts gradient_layouts,
                          Positions gradient_order, SavedGroups saved_groups, SavedTensors saved_tensors,
                          Positions saved_as_given, Positions saved_both_ways,
                          std::vector<Positions> inner_results, std::size_t budget_bytes, double budget_share,
                          double budget_time, bool budget_anything, bool padding_elimination,
                          bool record_launches, bool fuse, std::size_t written_results,
                          NamedPlan memory_plan) {
  const auto view = static_cast<std::string_view>(joint);
  session::SessionOptions options;
  options.expected_cotangents = std::move(expected_cotangents);
  options.output_layouts = layouts_of(std::move(output_layouts));
  options.gradient_layouts = layouts_of(std::move(gradient_layouts));
  options.gradient_order = std::move(gradient_order);
  options.saved_as_given = std::move(saved_as_given);
  options.saved_both_ways = std::move(saved_both_ways);
  options.inner_results = std::move(inner_results);
  options.memory_budget = {budget_bytes, budget_share, budget_time, budget_anything};
  options.padding_elimination = padding_elimination;
  options.record_launches = record_launches;
  options.fuse = fuse;
  options.written_results = written_results;
  options.memory_plan = plan_of(std::move(memory_plan));
  if (saved_groups) {
    options.saved_groups.emplace();
    for (auto& [cotangents, inputs] : *saved_groups)
      options.saved_groups->push_back({std::move(cotangents), std::move(inputs)});
  }
  options.saved_tensors = saved_tensors_of(std::move(saved_tensors));
  const py::gil_scoped_release release;
  return BoundSession(
      value_or_throw(Session::create(value_or_throw(pipeline::parse_joint_graph(view)), std::move(options))));
}

// None where only Python can build the result.
py::object served_call(const BoundSession& self, const py::list& state, std::vector<std::size_t> used,
                       bool record, StateWrites writes, const py::object& structure) {
  auto result = ResultTemplate::of(structure);
  if (!result) return py::none();
  return py::cast(std::make_unique<ServedCall>(self.session,
                                               ServedCall::Inputs{state, std::move(used), record},
                                               std::move(writes), std::move(*result)));
}

py::dict stats(const Session& self) {
  session::SessionStats stats;
  std::optional<session::PaddingStats> padding;
  {
    const py::gil_scoped_release release;
    stats = self.stats();
    padding = self.padding();
  }
  py::dict result;
  result["plans"] = stats.plans;
  result["plans_made"] = stats.plans_made;
  result["plan_seconds"] = stats.plan_seconds;
  result["arena_bytes"] = stats.arena_bytes;
  result["saved_bytes"] = stats.saved_bytes;
  result["instructions"] = stats.instructions;
  result["recomputed"] = stats.recomputed;
  result["frames"] = stats.frames;
  result["fused_kernels"] = stats.fused_kernels;
  result["replayed_runs"] = stats.replayed_runs;
  if (padding) {
    result["padding_calls"] = padding->calls;
    result["packed_calls"] = padding->packed_calls;
    result["density"] = padding->density;
    result["loss_density"] = padding->counted_density;
  }
  return result;
}

void bind_session_class(py::module_& m) {
  py::class_<BoundSession>(m, "Session", py::custom_type_setup(&collected<BoundSession>))
      .def(py::init(&make_session), py::arg("joint"), py::arg("expected_cotangents") = std::vector<bool>{},
           py::arg("output_layouts") = NamedLayouts{}, py::arg("gradient_layouts") = NamedLayouts{},
           py::arg("gradient_order") = Positions{}, py::arg("saved_groups") = SavedGroups{},
           py::arg("saved_tensors") = SavedTensors{}, py::arg("saved_as_given") = Positions{},
           py::arg("saved_both_ways") = Positions{}, py::arg("inner_results") = std::vector<Positions>{},
           py::kw_only(), py::arg("budget_bytes") = 0, py::arg("budget_share") = 0.0,
           py::arg("budget_time") = 0.0, py::arg("budget_anything") = false,
           py::arg("padding_elimination") = false, py::arg("record_launches") = false,
           py::arg("fuse") = false, py::arg("written_results") = 0, py::arg("memory_plan") = NamedPlan{})
      .def(
          "forward",
          [](BoundSession& self, const std::vector<at::Tensor>& inputs, bool record) {
            return with_warnings([&] { return self.session->forward(inputs, record); });
          },
          py::arg("inputs"), py::arg("record"))
      .def(
          "prepare",
          [](BoundSession& self, const std::vector<at::Tensor>& inputs, bool record) {
            self.session->prepare(inputs, record);
          },
          py::arg("inputs"), py::arg("record"), py::call_guard<py::gil_scoped_release>())
      .def(
          "memory",
          [](const BoundSession& self, const std::vector<at::Tensor>& inputs, bool record) {
            return self.session->memory(inputs, record);
          },
          py::arg("inputs"), py::arg("record"), py::call_guard<py::gil_scoped_release>())
      .def("served_call", &served_call, py::arg("state"), py::arg("used"), py::arg("record"),
           py::arg("writes"), py::arg("structure"))
      .def("set_functions", &BoundSession::set_functions, py::arg("functions"))
      .def("set_replay", &BoundSession::set_replay, py::arg("replay"))
      .def(
          "set_constants",
          [](BoundSession& self, const std::vector<at::Tensor>& constants) {
            self.session->set_constants(constants);
          },
          py::arg("constants"))
      .def(
          "set_first_touch",
          [](BoundSession& self, const PendingMemory& pending) {
            self.session->set_first_touch(pending.memory);
          },
          py::arg("pending"))
      .def(
          "describe_plan", [](const BoundSession& self) { return self.session->describe_plan(); },
          py::call_guard<py::gil_scoped_release>())
      .def("stats", [](const BoundSession& self) { return stats(*self.session); })
      .def_property_readonly("cotangent_of",
                             [](const BoundSession& self) { return self.session->joint().cotangent_of; })
      .def_property_readonly("gradient_of",
                             [](const BoundSession& self) { return self.session->joint().gradient_of; })
      .def_property_readonly("inputs",
                             [](const BoundSession& self) { return self.session->joint().forward_inputs; })
      .def_property_readonly("outputs",
                             [](const BoundSession& self) { return self.session->joint().forward_outputs; });
  py::class_<ServedCall>(m, "ServedCall", py::custom_type_setup(&collected<ServedCall>))
      .def("__call__", &ServedCall::operator(), py::arg("arguments"));
  py::class_<SizeQuestions>(m, "SizeQuestions", py::custom_type_setup(&collected<SizeQuestions>))
      .def(py::init([](std::string_view joint) {
             return SizeQuestions(value_or_throw(pipeline::parse_joint_graph(joint)));
           }),
           py::arg("joint"))
      .def("set_functions", &SizeQuestions::set_functions, py::arg("functions"))
      .def("answers", &SizeQuestions::answers, py::arg("inputs"));
}

void bind_first_touch(py::module_& m) {
  py::class_<PendingMemory>(m, "PendingMemory")
      .def(py::init([](const std::vector<at::Tensor>& leaves) {
             return PendingMemory{std::make_shared<device::FirstTouch>(device::gradient_bytes(leaves))};
           }),
           py::arg("leaves"))
      .def_property_readonly("bytes",
                             [](const PendingMemory& self) { return self.memory ? self.memory->bytes() : 0; })
      .def("withdraw", &PendingMemory::withdraw)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PendingMemory& self, const py::args&) { self.withdraw(); });
}

}  // namespace

void bind_session(py::module_& m) {
  bind_session_class(m);
  bind_first_touch(m);
}

}  // namespace rekindle::python
