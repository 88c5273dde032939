// The switches of PyTorch that decide what a forward computes and how: one table for keys, guards and
// replays.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace rekindle::python {

// One number for each switch, in the order of the table, and for what refuses a call: modes, transforms,
// saved-tensor hooks, traces. Needs the GIL.
std::vector<std::int64_t> ambient_state();

// Tells whether the switches are as they were when ambient_state() returned `state`, without making a vector.
// Needs the GIL.
bool is_ambient_state(const std::vector<std::int64_t>& state);

// (name, value as Python shows it) of the switches that are fields of a key.
pybind11::list ambient_fields();

// Sets the switches to what they were when ambient_state() returned `state`; grad mode and inference mode
// stay, which are entered and left as regions.
void set_ambient_state(const std::vector<std::int64_t>& state);

}  // namespace rekindle::python
