// How one tensor is a view of another: the methods of torch.Tensor that make it, so that it can be made again
// at other sizes. As an entry's content is not trusted, a step is one of the names below and nothing else.
//
//   step := [name, [argument*], {keyword: argument}, item | null]   item: of the tuple that a call returns
//   argument := integer | null | "..." | [argument*]
//             | {"slice": [argument, argument, argument]} | {"number": position}
//
// Numbers are those of the result that depend on sizes (structure.h).
#pragma once

#include <array>
#include <string_view>

#include "src/contract/json.h"

namespace rekindle::contract {

// Steps that are attributes: no argument is passed.
constexpr std::array<std::string_view, 6> kViewProperties = {"T", "mT", "H", "mH", "real", "imag"};

// Steps that are calls.
constexpr std::array<std::string_view, 35> kViewMethods = {"__getitem__",
                                                           "adjoint",
                                                           "broadcast_to",
                                                           "chunk",
                                                           "detach",
                                                           "diagonal",
                                                           "dsplit",
                                                           "expand",
                                                           "flatten",
                                                           "hsplit",
                                                           "movedim",
                                                           "moveaxis",
                                                           "narrow",
                                                           "permute",
                                                           "ravel",
                                                           "reshape",
                                                           "select",
                                                           "split",
                                                           "split_with_sizes",
                                                           "squeeze",
                                                           "swapaxes",
                                                           "swapdims",
                                                           "t",
                                                           "tensor_split",
                                                           "transpose",
                                                           "unbind",
                                                           "unflatten",
                                                           "unfold",
                                                           "unsafe_chunk",
                                                           "unsafe_split",
                                                           "unsqueeze",
                                                           "view",
                                                           "view_as_complex",
                                                           "view_as_real",
                                                           "vsplit"};

// Whether it is a list of steps; `numbers` grows to what they refer to.
bool are_view_steps(const Json& steps, std::size_t& numbers);

}  // namespace rekindle::contract
