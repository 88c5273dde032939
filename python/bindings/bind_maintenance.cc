// The cache's maintenance: what the command line offers, for Python. No logic here either.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "export_cache/export_cache.h"
#include "export_cache/units.h"
#include "python/bindings/bindings.h"
#include "python/bindings/cache_values.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

py::list as_list(const std::vector<PruneItem>& items) {
  py::list rows;
  for (const PruneItem& item : items) {
    py::dict row = as_dict(item.entry);
    row["why"] = item.why;
    rows.append(row);
  }
  return rows;
}

py::dict prune(ExportCache& self, PrunePolicy policy, bool dry_run) {
  const PruneReport report = without_gil([&] { return self.prune(policy, dry_run); });
  py::dict result;
  result["dry_run"] = report.dry_run;
  result["removed"] = as_list(report.plan.removed);
  result["spared"] = as_list(report.plan.spared);
  result["bytes_before"] = report.bytes_before;
  result["bytes_after"] = report.bytes_after;
  result["disk_before"] = report.disk_before;
  result["disk_after"] = report.disk_after;
  return result;
}

py::dict verify(ExportCache& self, bool quick, double sample, bool repair) {
  VerifyOptions options{.sample = sample, .repair = repair};
  if (quick) options.depth = VerifyOptions::Depth::kQuick;
  const VerifyReport report = without_gil([&] { return self.verify(options); });
  py::dict result;
  result["entries"] = report.entries;
  result["entries_read"] = report.entries_read;
  result["bytes_read"] = report.bytes_read;
  result["left"] = report.left();
  py::list problems;
  for (const VerifyProblem& problem : report.problems) {
    py::dict row;
    row["kind"] = verify_problem_name(problem.kind);
    row["id"] = problem.id.hex();
    row["what"] = problem.what;
    row["repaired"] = problem.repaired;
    problems.append(row);
  }
  result["problems"] = problems;
  return result;
}

std::uint64_t pack(ExportCache& self, const std::vector<std::string>& prefixes, const std::string& path) {
  return without_gil([&]() -> Result<std::uint64_t> {
    std::vector<Digest> ids;
    for (const std::string& prefix : prefixes) {
      REKINDLE_ASSIGN_OR_RETURN(ids.emplace_back(), self.find(prefix));
    }
    return self.pack(std::move(ids), path);
  });
}

py::dict unpack(ExportCache& self, const std::string& path) {
  const UnpackReport report = without_gil([&] { return self.unpack(path); });
  py::dict result;
  result["added"] = report.added;
  result["known"] = report.known;
  result["unsound"] = report.unsound;
  return result;
}

void set_pin(ExportCache& self, const std::string& prefix, bool pinned) {
  without_gil([&]() -> Status {
    REKINDLE_ASSIGN_OR_RETURN(const Digest id, self.find(prefix));
    return pinned ? self.pin(id) : self.unpin(id);
  });
}

}  // namespace

void bind_maintenance(py::module_& m) {
  m.def("parse_duration", [](const std::string& text) { return value_or_throw(parse_duration(text)); });
  py::class_<PrunePolicy>(m, "PrunePolicy")
      .def(py::init<>())
      .def_readwrite("model", &PrunePolicy::model)
      .def_readwrite("older_than", &PrunePolicy::older_than)
      .def_readwrite("unused_since", &PrunePolicy::unused_since)
      .def_readwrite("not_torch", &PrunePolicy::not_torch)
      .def_readwrite("keep_last", &PrunePolicy::keep_last)
      .def_readwrite("max_bytes", &PrunePolicy::max_bytes);
  auto cache = py::reinterpret_borrow<py::class_<ExportCache>>(m.attr("ExportCache"));
  cache.def("prune", &prune, py::arg("policy"), py::arg("dry_run"))
      .def("verify", &verify, py::arg("quick"), py::arg("sample"), py::arg("repair"))
      .def("pack", &pack, py::arg("prefixes"), py::arg("path"))
      .def("unpack", &unpack, py::arg("path"))
      .def("set_pin", &set_pin, py::arg("prefix"), py::arg("pinned"));
}

}  // namespace rekindle::python
