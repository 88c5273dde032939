// Batch norms in training, of one dtype: statistics, and the line from x to y.
//
// Results lie as in eager: as x does, or row-major where x has gaps. In channels-last, the kernels see one
// row of all channels for each place. On the CPU, an x that is not dense goes to PyTorch's kernel for such,
// as in eager.
#include <ATen/ops/empty.h>

#include "kernels/batch_norm.h"
#include "session/lower/op.h"

namespace rekindle::session {
namespace {

// `x`, or a copy, as a contiguous tensor [N, C, ...]; x has sizes [N, C, ...].
at::Tensor rows_of(const at::Tensor& x, at::MemoryFormat format) {
  const at::Tensor dense = x.contiguous(format);
  if (format == at::MemoryFormat::Contiguous) return dense;
  const std::int64_t channels = x.size(1), rows = channels == 0 ? 0 : x.numel() / channels;
  return dense.movedim(1, -1).view({rows, channels});
}

// Whether eager takes its kernel for tensors that do not lie densely in one of the formats it knows.
bool is_strided(const at::Tensor& x, at::MemoryFormat format) {
  return x.is_cpu() && !x.is_contiguous(format);
}

// The same of memory that is written to.
at::Tensor written_rows(const at::Tensor& out, at::MemoryFormat format) {
  TORCH_CHECK(out.is_contiguous(format), "a batch norm's result was planned with strides ", out.strides());
  return rows_of(out, format);
}

Layout layout_in(const at::Tensor& x, at::MemoryFormat format) {
  Layout layout{x.scalar_type(), x.sizes().vec(), {}};
  if (format == at::MemoryFormat::Contiguous) return layout;
  layout.strides = at::empty(x.sizes(), x.options().device(at::kMeta), format).strides().vec();
  return layout;
}

at::Tensor contiguous_or_none(const Args& args, bool there, std::size_t i) {
  return there ? args.in(i).contiguous() : at::Tensor();
}

void check_batch_norm(const LowerContext& context, std::size_t x) {
  TORCH_CHECK(context.rank(x) >= 2, "a batch norm of a tensor with ", context.rank(x), " dimensions");
}

// Inputs: x, running_mean, running_var, scale?, bias?. Outputs: mean, inv_std_dev, the new running
// statistics, factor, offset.
Lowering lower_batch_statistics(const LowerContext& context) {
  check_batch_norm(context, 0);
  const auto format = context.meta(0).suggest_memory_format();
  const kernels::BatchNormOptions options{context.number_attribute("momentum"),
                                          context.number_attribute("eps")};
  Lowering lowering;
  lowering.outputs.assign(6, Layout{context.dtype(0), {context.sizes(0)[1]}, {}});
  lowering.kernel = [format, options, scaled = context.has(3), shifted = context.has(4)](const Args& args) {
    // In eager's words; the kernel takes x without channels.
    TORCH_CHECK(args.in(0).numel() != 0,
                "input tensor must have at least one element, but got input_sizes = ", args.in(0).sizes());
    const at::Tensor mean = args.in(1).contiguous(), var = args.in(2).contiguous(),
                     weight = contiguous_or_none(args, scaled, 3),
                     bias = contiguous_or_none(args, shifted, 4);
    const kernels::BatchNormStatistics found{args.out(0), args.out(1), args.out(2),
                                             args.out(3), args.out(4), args.out(5)};
    if (is_strided(args.in(0), format))
      kernels::strided_batch_statistics(args.in(0), {mean, var, weight, bias}, options, found);
    else
      kernels::batch_statistics(rows_of(args.in(0), format), {mean, var, weight, bias}, options, found);
  };
  return lowering;
}

// Inputs: x, mean, factor, offset.
Lowering lower_batch_normalize(const LowerContext& context) {
  check_batch_norm(context, 0);
  const auto format = context.meta(0).suggest_memory_format();
  const bool relu = context.int_attribute("relu", 0) != 0;
  Lowering lowering =
      computed(context.dtype(0), context.sizes(0),
               [format, relu](const Args& args) {
                 const kernels::BatchNormLine line{args.in(1), args.in(2), args.in(3)};
                 if (is_strided(args.in(0), format))
                   return kernels::strided_batch_normalize(args.in(0), line, relu, args.out());
                 at::Tensor y = written_rows(args.out(), format);
                 kernels::batch_normalize(rows_of(args.in(0), format), line, relu, y);
               },
               {0});
  lowering.outputs = {layout_in(context.meta(0), format)};
  return lowering;
}

}  // namespace

REKINDLE_OP("rekindle", "BatchStatistics", lower_batch_statistics);
REKINDLE_OP("rekindle", "BatchNormalize", lower_batch_normalize);

}  // namespace rekindle::session
