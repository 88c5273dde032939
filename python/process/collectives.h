// Collectives of torch.distributed that no other rank hears of, while a graph is made and tried.
//
// An export runs a forward more often than the caller does, at other sizes, too. A rank that finds the graph
// in its cache would meet it in the wrong collective: numbers of one step would be summed with those of
// another. So an export asks nobody: each collective is answered as if all ranks of the group had the same
// tensors. Two answered runs of the same forward are equal, which is what an export compares.
#pragma once

namespace rekindle::python {

// Lets this thread, and the backwards that it begins, answer collectives by themselves, or no longer do.
// Returns what held before. What is not defined for equal tensors (a received tensor, a scattered one) gets
// a fixed pattern. A collective that is not known throws c10::NotImplementedError.
bool answer_collectives(bool here);

}  // namespace rekindle::python
