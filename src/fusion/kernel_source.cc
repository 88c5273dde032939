#include "src/fusion/kernel_source.h"

#include <fmt/format.h>

#include <bit>
#include <limits>

namespace rekindle::fusion {
namespace {

using graph::DType;

bool has_16_bits(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16; }

// What a value is while it is computed.
const char* computed_type(DType type) {
  switch (type) {
    case DType::kFloat64:
      return "double";
    case DType::kInt32:
      return "int";
    case DType::kInt64:
      return "long long";
    case DType::kBool:
      return "bool";
    default:
      return "float";
  }
}

// The type of the kernel language that lies in memory.
const char* stored_type(DType type) {
  switch (type) {
    case DType::kFloat16:
      return "Half";
    case DType::kBFloat16:
      return "BFloat16";
    case DType::kBool:
      return "Bool";
    default:
      return computed_type(type);
  }
}

// By its bits, so that it is exact, infinite ones and NaN included.
std::string literal(double number, DType type) {
  switch (type) {
    case DType::kFloat64:
      return fmt::format("number_of({:#x}ull)", std::bit_cast<std::uint64_t>(number));
    case DType::kInt32:
    case DType::kInt64:
      return fmt::format("({})({}ll)", computed_type(type), static_cast<std::int64_t>(number));
    case DType::kBool:
      return number != 0 ? "true" : "false";
    default:
      return fmt::format("number_of({:#x}u)", std::bit_cast<std::uint32_t>(static_cast<float>(number)));
  }
}

class Source {
 public:
  Source(const Body& body, const Access& access)
      : body_(body), access_(access), rank_(access.sizes.size()), width_(width_of(access)) {
    add_sizes();
    kernel_.first_address = kernel_.words.size();
    kernel_.words.resize(kernel_.words.size() + access.strides.size(), 0);
    first_stride_ = kernel_.words.size();
    for (const Numbers& strides : access.strides)
      kernel_.words.insert(kernel_.words.end(), strides.begin(), strides.end());
  }

  Kernel run() {
    std::string& text = kernel_.source;
    const std::size_t inputs = body_.inputs.size();
    text = fmt::format("KERNEL({}, {}) {{\n  using Index = {};\n", kKernelName, kernel_.words.size(),
                       is_small() ? "unsigned" : "unsigned long long");
    add_coordinates();
    for (std::size_t i = 0; i < inputs; ++i) add_load(i);
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      kernel_.alignment.push_back(alignment_of(inputs + i, output_type(i)));
      text += fmt::format("  {} y{}[{}];\n", computed_type(output_type(i)), i, width_);
    }
    text += fmt::format("#pragma unroll\n  for (int k = 0; k < {}; ++k) {{\n", width_);
    for (std::size_t i = 0; i < body_.steps.size(); ++i) add_step(i);
    for (std::size_t i = 0; i < body_.outputs.size(); ++i)
      text += fmt::format("    y{}[k] = s{};\n", i, body_.outputs[i]);
    text += "  }\n";
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) add_store(i);
    text += "}\n";
    return std::move(kernel_);
  }

 private:
  // The threads, then the sizes of all dimensions but the outermost, the last one in threads.
  void add_sizes() {
    kernel_.threads = access_.elements() / width_;
    kernel_.words = {kernel_.threads};
    for (std::size_t d = 1; d < rank_; ++d)
      kernel_.words.push_back(access_.sizes[d] / (d + 1 == rank_ ? width_ : 1));
  }

  // Whether all offsets, and the numbers of the last block's threads, have 32 bits.
  bool is_small() const {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - std::int64_t{kThreads} * 4;
    for (const Numbers& strides : access_.strides) {
      std::int64_t last = 0;
      for (std::size_t d = 0; d < rank_; ++d) {
        if (strides[d] < 0) return false;
        last += (access_.sizes[d] - 1) * strides[d];
      }
      if (last > most) return false;
    }
    return access_.elements() <= most;
  }

  void add_coordinates() {
    kernel_.source +=
        "  const Index thread = (Index)BLOCK * THREADS + THREAD;\n"
        "  if (thread >= (Index)WORD(0)) return;\n";
    if (rank_ == 1) {
      kernel_.source += fmt::format("  const Index c0 = thread * {};\n", width_);
      return;
    }
    kernel_.source += "  Index rest = thread;\n";
    for (std::size_t d = rank_ - 1; d > 0; --d) {
      kernel_.source +=
          fmt::format("  const Index c{0} = rest % (Index)WORD({0}){1};\n  rest /= (Index)WORD({0});\n", d,
                      d + 1 == rank_ ? fmt::format(" * {}", width_) : "");
    }
    kernel_.source += "  const Index c0 = rest;\n";
  }

  std::string address_of(std::size_t operand, DType type, const char* qualifier) const {
    std::string offset;
    for (std::size_t d = 0; d < rank_; ++d) {
      const std::int64_t stride = access_.strides[operand][d];
      if (stride == 0) continue;
      const std::string part =
          stride == 1 && d + 1 == rank_
              ? fmt::format("c{}", d)
              : fmt::format("c{} * (Index)WORD({})", d, first_stride_ + operand * rank_ + d);
      offset += offset.empty() ? part : " + " + part;
    }
    return fmt::format("({}{}*)WORD({}){}", qualifier, stored_type(type), kernel_.first_address + operand,
                       offset.empty() ? "" : " + (" + offset + ")");
  }

  // How a thread finds its neighbours: at once, where they lie side by side and never begin in between; as
  // one element for all; or each by itself.
  enum class Reach : std::uint8_t { kTogether, kSame, kApart };
  Reach reach_of(std::size_t operand) const {
    const Numbers& strides = access_.strides[operand];
    if (strides.back() == 0) return Reach::kSame;
    if (strides.back() != 1) return Reach::kApart;
    for (std::size_t d = 0; d + 1 < rank_; ++d) {
      if (strides[d] % width_ != 0) return Reach::kApart;
    }
    return Reach::kTogether;
  }

  std::size_t alignment_of(std::size_t operand, DType type) const {
    const std::size_t size = graph::dtype_size(type);
    return reach_of(operand) == Reach::kTogether ? size * static_cast<std::size_t>(width_) : size;
  }

  // The word of the stride between neighbours.
  std::size_t last_stride(std::size_t operand) const { return first_stride_ + operand * rank_ + rank_ - 1; }

  void add_load(std::size_t i) {
    const DType type = body_.inputs[i];
    kernel_.alignment.push_back(alignment_of(i, type));
    kernel_.source += fmt::format("  {} x{}[{}];\n", computed_type(type), i, width_);
    const std::string address = address_of(i, type, "const ");
    switch (reach_of(i)) {
      case Reach::kTogether:
        kernel_.source += fmt::format("  load<{}>(x{}, {});\n", width_, i, address);
        break;
      case Reach::kSame:
        kernel_.source += fmt::format("  load_same<{}>(x{}, {});\n", width_, i, address);
        break;
      case Reach::kApart:
        kernel_.source +=
            fmt::format("  load_apart<{}>(x{}, {}, WORD({}));\n", width_, i, address, last_stride(i));
    }
  }

  void add_store(std::size_t i) {
    const std::size_t operand = body_.inputs.size() + i;
    const std::string address = address_of(operand, output_type(i), "");
    kernel_.source += reach_of(operand) == Reach::kTogether
                          ? fmt::format("  store<{}>({}, y{});\n", width_, address, i)
                          : fmt::format("  store_apart<{}>({}, y{}, WORD({}));\n", width_, address, i,
                                        last_stride(operand));
  }

  DType output_type(std::size_t i) const { return body_.steps[body_.outputs[i]].type; }

  std::string operand_of(const Step& step, std::size_t i) const {
    const Operand& operand = step.operands[i];
    switch (operand.from) {
      case Operand::From::kInput:
        return fmt::format("x{}[k]", operand.index);
      case Operand::From::kStep:
        return fmt::format("s{}", operand.index);
      default:
        return literal(operand.number, step.reads);
    }
  }

  void add_step(std::size_t i) {
    const Step& step = body_.steps[i];
    std::string call = step.op == Op::kCast ? fmt::format("cast<{}>(", computed_type(step.type))
                                            : fmt::format("{}(", name_of(step.op));
    for (std::size_t j = 0; j < step.operands.size(); ++j) call += (j == 0 ? "" : ", ") + operand_of(step, j);
    call += ")";
    const bool is_rounded = has_16_bits(step.type) && !(step.op == Op::kCast && step.reads == step.type);
    if (is_rounded) call = fmt::format("rounded<{}>({})", stored_type(step.type), call);
    kernel_.source += fmt::format("    const {} s{} = {};\n", computed_type(step.type), i, call);
  }

  const Body& body_;
  const Access& access_;
  const std::size_t rank_;
  const std::int64_t width_;
  std::size_t first_stride_ = 0;
  Kernel kernel_;
};

}  // namespace

Kernel kernel_source(const Body& body, const Access& access) { return Source(body, access).run(); }

}  // namespace rekindle::fusion
