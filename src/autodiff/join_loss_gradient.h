// join_loss_gradient(): one op for the gradient of a loss and those of the product that made its scores.
//
// An example: a language model returns its logits beside the loss. Their memory is the caller's, so that the
// gradient of the logits cannot lie there, and is as large once more. The joined op makes it block by block:
//
//   %d = rekindle::CrossEntropyLossGradient(%dl, %logits, %t, %lse)
//   %dx = MatMul(%d, %w)                                   %dx, %dw = rekindle::LinearCrossEntropyGradient(
//   %dw = rekindle::LinearWeightGradient(%d, %x)     ->        %dl, %logits, %t, %lse, %x, %w)
//
// Scores that are no result stay as they are: their gradient takes their memory.
#pragma once

#include "src/autodiff/gradient.h"

namespace rekindle::autodiff {

// Joins what it can; a sum over the gradient of the scores, a bias's, becomes a third output. Values that
// stay keep their names.
void join_loss_gradient(JointGraph& joint);

}  // namespace rekindle::autodiff
