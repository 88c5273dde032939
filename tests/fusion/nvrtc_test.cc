// Every op in every type compiles for the architectures that wheels are made for; no GPU is needed for that.
#include <catch2/catch.hpp>

#include "device/cuda/nvrtc_compiler.h"
#include "src/fusion/kernel_source.h"
#include "tests/fusion/bodies.h"

using namespace rekindle;
using graph::DType;

namespace {

constexpr std::array kTypes = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                               DType::kInt32,   DType::kInt64,   DType::kBool};

device::NvrtcCompiler* compiler() {
  static const std::unique_ptr<device::NvrtcCompiler> made = [] {
    if (std::string(REKINDLE_NVRTC).empty()) return std::unique_ptr<device::NvrtcCompiler>();
    return std::make_unique<device::NvrtcCompiler>(
        std::vector<std::string>{"libnothing.so", REKINDLE_NVRTC},
        std::string(fusion::cuda_language()) + fusion::common_language());
  }();
  return made.get();
}

// All ops of one type in one kernel: an output each.
fusion::Body all_ops(DType type) {
  fusion::Body all;
  for (const fusion::Op op : testing::ops_for(type)) {
    fusion::Body one = testing::body_of(op, type);
    for (fusion::Operand& operand : one.steps[0].operands) operand.index += all.inputs.size();
    all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
    all.outputs.push_back(all.steps.size());
    all.steps.push_back(one.steps[0]);
  }
  return all;
}

fusion::Access rows_of(const fusion::Body& body, std::int64_t columns) {
  fusion::Access access{{3, columns}, {}};
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    const std::array<fusion::Numbers, 4> kinds = {
        fusion::Numbers{columns, 1}, {0, 1}, {1, 0}, {1, 3}};  // whole, a row, a column, transposed
    access.strides.push_back(kinds.at(i % kinds.size()));
  }
  for (std::size_t i = 0; i < body.outputs.size(); ++i) access.strides.push_back({columns, 1});
  return fusion::collapsed(access);
}

}  // namespace

TEST_CASE("NVRTC compiles every op in every type") {
  if (compiler() == nullptr) {
    WARN("torch has brought no NVRTC: nothing is compiled");
    return;
  }
  for (const DType type : kTypes) {
    const fusion::Body body = all_ops(type);
    for (const std::int64_t columns : {8, 6, 7}) {
      CAPTURE(graph::dtype_name(type), columns);
      const fusion::Kernel kernel = fusion::kernel_source(body, rows_of(body, columns));
      CHECK(compiler()->cubin(kernel.source, "sm_90").size() > 1000);
    }
  }
}

TEST_CASE("Kernels are compiled for each architecture") {
  if (compiler() == nullptr) return;
  const fusion::Body body = testing::body_of(fusion::Op::kGelu, DType::kBFloat16);
  const fusion::Kernel kernel = fusion::kernel_source(body, rows_of(body, 8));
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"})
    CHECK(compiler()->cubin(kernel.source, architecture).size() > 1000);
}

TEST_CASE("What cannot be compiled is an error with the compiler's words") {
  if (compiler() == nullptr) return;
  CHECK_THROWS_WITH(compiler()->cubin("int x = y;", "sm_90"),
                    Catch::Matchers::Contains("identifier \"y\" is undefined"));
}

TEST_CASE("Without NVRTC, what is wrong with each library is said") {
  device::NvrtcCompiler none({"libnothing.so", "libcould.so"}, "");
  CHECK_THROWS_WITH(none.cubin("", "sm_90"),
                    Catch::Matchers::Contains("libnothing.so") && Catch::Matchers::Contains("libcould.so"));
}
