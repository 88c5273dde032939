// NeededRows: which rows of tokens a call needs, from the answers to a packed graph's questions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "src/padding/pack_rows.h"

namespace rekindle::session {

struct NeededRows {
  // A packed graph takes these vectors beside the whole graph's inputs. The first three are of int64, in
  // increasing order; the last two, of bool, tell which of `rows` and of `counted` do not only fill up.
  at::Tensor rows, counted, counted_among_rows, is_needed, counts_itself;
  // How many rows losses, selections and what they see need, and how many the first two do. `rows` and
  // `counted` have a few more, so that few numbers of rows occur and plans serve many calls.
  std::int64_t needed = 0, counts = 0;

  // In the order in which a packed graph takes them.
  std::array<at::Tensor, padding::kRowInputs> inputs() const {
    return {rows, counted, counted_among_rows, is_needed, counts_itself};
  }
};

// A row is needed if a loss or a selection reads it, or if a needed row sees it in an attention. `answers`:
// the outputs of the question graph for a call with `batch` x `length` tokens. Waits for the device.
NeededRows find_needed_rows(const padding::RowQuestions& questions, const std::vector<at::Tensor>& answers,
                            std::int64_t batch, std::int64_t length);

// The numbers of rows that occur are multiples of this part of all tokens.
inline constexpr std::int64_t kRowSteps = 32;

}  // namespace rekindle::session
