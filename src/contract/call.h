// How an entry names what a custom autograd Function is called with. Tensors come from the graph; scalars are
// written down; every other object, and the Function itself, is a path from the live model or a loaded
// module. What is made at each call (bound methods, partial objects, closures) is made again from its parts.
// An entry can thus name only what is there already.
//
//   value := {"tensor": position among the node's inputs} | {"plain": scalar} | {"object": path}
//          | {"list" | "tuple": [value*]} | {"dict": [[value, value]*]} | {"dtype" | "device": name}
//          | {"size": [integer*]} | {"method": [value, path]} | {"partial": [value, value, value]}
//          | {"closure": [path of the outer function, path of its code, name, value, value, [value*]]}
//   path  := [start, step*]
//   start := ["model"] | ["module", name of a loaded module]
//   step  := ["submodule" | "attribute", name] | ["item", key or position] | ["function"]
//          | ["code" | "cell" | "class", position]
//
// functions/calls.py and functions/references.py make and follow them.
#pragma once

#include "src/contract/json.h"

namespace rekindle::contract {

// tensors: inputs of the node that a value may refer to.
bool is_call_value(const Json& json, std::size_t tensors);
bool is_path(const Json& json);

}  // namespace rekindle::contract
