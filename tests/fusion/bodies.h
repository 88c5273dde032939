// Bodies for tests of kernels: each op alone, and random ones.
#pragma once

#include <vector>

#include "src/fusion/body.h"

namespace rekindle::testing {

// One step of the op that reads inputs of `type`; the mask or condition, where it takes one, is bool.
fusion::Body body_of(fusion::Op op, graph::DType type);

// The ops that there are for numbers of a type.
std::vector<fusion::Op> ops_for(graph::DType type);

}  // namespace rekindle::testing
