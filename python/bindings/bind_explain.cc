// Leaf trees and their differences. No logic here: their contracts are
// export_cache/formats/leaf_tree.h and differences.h.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "export_cache/formats/leaf_tree.h"
#include "export_cache/misses/differences.h"
#include "python/bindings/bindings.h"

namespace rekindle::python {

namespace py = pybind11;
using PairList = std::vector<std::pair<std::string, std::string>>;

namespace {

Leaves leaves_from(PairList pairs) {
  Leaves leaves;
  leaves.reserve(pairs.size());
  for (auto& [path, text] : pairs) leaves.push_back({std::move(path), std::move(text)});
  return leaves;
}

LeafTree make_tree(std::string model, PairList leaves, std::map<std::string, PairList> parts) {
  LeafTree tree;
  tree.model = std::move(model);
  tree.leaves = leaves_from(std::move(leaves));
  for (auto& [digest, pairs] : parts) tree.parts.emplace(digest, leaves_from(std::move(pairs)));
  return tree;
}

PairList pairs_of(const Leaves& leaves) {
  PairList pairs;
  for (const Leaf& leaf : leaves) pairs.emplace_back(leaf.path, leaf.text);
  return pairs;
}

py::list difference_rows(const LeafTree& before, const LeafTree& after) {
  std::vector<Difference> found;
  {
    const py::gil_scoped_release release;
    found = differences(before, after);
  }
  py::list rows;
  for (const Difference& difference : found) {
    rows.append(py::make_tuple(difference.path, difference.before, difference.after, difference.places));
  }
  return rows;
}

}  // namespace

void bind_explain(py::module_& m) {
  py::class_<LeafTree>(m, "LeafTree")
      .def(py::init<>())
      .def(py::init(&make_tree), py::arg("model"), py::arg("leaves"), py::arg("parts"))
      .def_readonly("model", &LeafTree::model)
      .def_property_readonly("leaves", [](const LeafTree& self) { return pairs_of(self.leaves); })
      .def_property_readonly("parts", [](const LeafTree& self) {
        std::map<std::string, PairList> parts;
        for (const auto& [digest, leaves] : self.parts) parts.emplace(digest, pairs_of(leaves));
        return parts;
      });
  m.def("differences", &difference_rows, py::arg("before"), py::arg("after"));
}

}  // namespace rekindle::python
