// copy_biases(): lets a backward compute a normalization again without reading the model's parameters.
//
// An example: y = LayerNormalization(x, scale, bias) is large, and the next layer's gradient reads it. The
// gradient of the normalization reads x and scale, so that y can be made of them again, but for the bias,
// which eager does not save: a program may write to it between forward and backward. A copy of it, a few KiB,
// is what the normalization reads:
//
//   %b = rekindle::Copy(%bias)
//   %y = LayerNormalization(%x, %scale, %b)
//
// The plan says what is computed again (session/plan/budget.h).
#pragma once

#include "src/autodiff/gradient.h"

namespace rekindle::autodiff {

// Copies the biases, of at most 64 KiB, of normalizations whose result the backward reads, unless it reads
// the bias, too.
void copy_biases(JointGraph& joint);

}  // namespace rekindle::autodiff
