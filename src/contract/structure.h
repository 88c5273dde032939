// Structure: how a module's result is made from the outputs of a graph and the inputs of a call.
//
//   structure := part | {"with_views": [view*], "result": part}
//   part := {"output" | "input" | "view" | "number": position}
//         | {"shared": part}            a container that is in several places; "same" has it in the others
//         | {"same": position among the shared parts and the objects that were made before}
//         | {"value": scalar} | {"dtype" | "device": name} | {"class": name}
//         | {"list" | "tuple" | "size": [part*]} | {"dict" | "OrderedDict": [[scalar, part]*]}
//         | {"namedtuple" | "return_type": name, "items": [part*]}
//         | {"model_output" | "dataclass" | "object": name, "items": [[text, part]*]}
//   name := [module, qualified name]
//   view := {"of": base, "detached": bool, "is_view": bool, "one_of_many": bool, place}
//   base := {"input" | "output": position}
//   place := "steps": [step*]             step: view_steps.h
//          | "size": [n*], "stride": [n*], "offset": n from the base's own, "base_stride": [n*]
//
// Numbers are those of the result that depend on sizes. results/contract.py and results/views.py make
// structures and rebuild results from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/contract/json.h"

namespace rekindle::contract {

class Structure {
 public:
  // How many of each a structure refers to, at least.
  struct Needs {
    std::size_t outputs = 0;  // of the graph
    std::size_t inputs = 0;   // of the call
    std::size_t numbers = 0;  // that depend on sizes
  };

  // What only torch can tell the right from the wrong of.
  struct TorchName {
    std::string kind;  // "dtype" or "device"
    std::string name;
  };

  // Of None.
  Structure() = default;
  // Nothing for what is no structure.
  static std::optional<Structure> of(Json described);

  const Json& described() const { return described_; }
  const Needs& needs() const { return needs_; }
  const std::vector<TorchName>& torch_names() const { return torch_names_; }
  bool operator==(const Structure& other) const { return described_ == other.described_; }

 private:
  Json described_ = {{"value", nullptr}};
  Needs needs_;
  std::vector<TorchName> torch_names_;
};

}  // namespace rekindle::contract
