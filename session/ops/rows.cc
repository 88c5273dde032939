// Rows of tokens that are taken out of whole values, and put back (src/padding). `flat`: batch and length are
// one dimension of the whole value.
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

// Inputs of these ops: values, rows, tokens*, counts?. The last is there for results and their gradients: a
// row that does not count is zero.
bool is_flat(const LowerContext& context) { return context.int_attribute("flat", 0) != 0; }

// The whole value's sizes, from its rows'.
Sizes whole_sizes(const LowerContext& context, Sizes rows) {
  const at::Tensor& tokens = context.meta(2);
  const std::int64_t batch = tokens.size(0), length = tokens.size(1);
  if (is_flat(context)) {
    rows[0] = batch * length;
    return rows;
  }
  rows[0] = length;
  rows.insert(rows.begin(), batch);
  return rows;
}

// Of a value with a dimension for batch and one for length: one for both.
Sizes as_rows(const Sizes& sizes) {
  Sizes rows(sizes.begin() + 1, sizes.end());
  rows[0] *= sizes[0];
  return rows;
}

// Takes rows of `whole`, [B, L, ...], which may lie in memory as it likes.
void take_rows(const at::Tensor& whole, const at::Tensor& rows, at::Tensor& out) {
  if (whole.is_contiguous()) {
    at::index_select_out(out, whole.view(as_rows(whole.sizes().vec())), 0, rows);
    return;
  }
  const std::int64_t length = whole.size(1);
  at::index_out(out, whole, {rows.div(length, "floor"), rows.remainder(length)});
}

// `counts` for values with that many dimensions.
at::Tensor along_rows(const at::Tensor& counts, std::int64_t dims) {
  Sizes sizes(static_cast<std::size_t>(dims), 1);
  sizes[0] = counts.numel();
  return counts.view(sizes);
}

// A gradient of a result that says something of rows that were left out would be lost.
void check_left_out(const at::Tensor& whole, const at::Tensor& taken) {
  TORCH_CHECK(whole.count_nonzero().item<std::int64_t>() == taken.count_nonzero().item<std::int64_t>(),
              "padding_elimination has left rows of a result ", whole.sizes(),
              " out that the loss of the model does not read, but a gradient came for them: something else "
              "reads them; set padding_elimination=False");
}

Lowering lower_pack_rows(const LowerContext& context) {
  const bool flat = is_flat(context);
  Sizes sizes = flat ? context.sizes(0) : as_rows(context.sizes(0));
  const Sizes rows = context.sizes(1);
  TORCH_CHECK(rows.size() == 1 && context.dtype(1) == at::kLong, "PackRows takes a vector of rows");
  sizes[0] = rows[0];
  const bool result = context.has(3);
  Sizes whole = sizes;
  if (!flat) whole = whole_sizes(context, sizes);
  return computed(context.dtype(0), sizes, [=](const Args& args) {
    flat ? static_cast<void>(at::index_select_out(args.out(), args.in(0), 0, args.in(1)))
         : take_rows(args.in(0).expand(whole), args.in(1), args.out());
    if (!result) return;
    args.out().masked_fill_(along_rows(args.in(3), args.out().dim()).logical_not(), 0);
    check_left_out(args.in(0), args.out());
  });
}

Lowering lower_unpack_rows(const LowerContext& context) {
  const Sizes sizes = whole_sizes(context, context.sizes(0));
  const Sizes flat = is_flat(context) ? sizes : as_rows(sizes);
  return computed(context.dtype(0), sizes, [flat, result = context.has(3)](const Args& args) {
    const at::Tensor& rows = args.in(0);
    args.out().zero_();
    args.out().view(flat).index_copy_(
        0, args.in(1), result ? rows.masked_fill(along_rows(args.in(3), rows.dim()).logical_not(), 0) : rows);
  });
}

}  // namespace

REKINDLE_OP("rekindle", "PackRows", lower_pack_rows);
REKINDLE_OP("rekindle", "UnpackRows", lower_unpack_rows);

}  // namespace rekindle::session
