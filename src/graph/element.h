// Single elements of constants: 16-bit floats, which C++20 lacks, and access by index.
#pragma once

#include <cstdint>

#include "src/graph/attribute.h"

namespace rekindle::graph {

// Rounds to nearest, ties to even; overflow gives infinity, a NaN stays a quiet NaN.
std::uint16_t float16_from_double(double value);
std::uint16_t bfloat16_from_double(double value);
// Exact.
double double_from_float16(std::uint16_t bits);
double double_from_bfloat16(std::uint16_t bits);

// True for the dtypes whose elements read_double and append_double convert: all but string and complex.
bool is_real(DType dtype);
// Integer dtypes and bool.
bool is_integral(DType dtype);
// Element `index` as a double; 64-bit integers are rounded. Preconditions: is_real, 0 <= index < numel.
double read_double(const ConstantTensor& constant, std::int64_t index);
// Element `index` of an integral constant (a uint64 keeps its bits). Same preconditions.
std::int64_t read_int64(const ConstantTensor& constant, std::int64_t index);
// Appends one element to `bytes`: rounded for floats, saturated for
// integers (a NaN gives 0), value != 0 for bool.
void append_double(DType dtype, double value, std::string& bytes);
// Appends one element of an integral dtype, keeping the low bits.
void append_int64(DType dtype, std::int64_t value, std::string& bytes);

}  // namespace rekindle::graph
