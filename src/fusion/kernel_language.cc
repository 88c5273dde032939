#include "src/fusion/kernel_source.h"

namespace rekindle::fusion {

const char* cuda_language() {
  return R"(
#define BLOCK blockIdx.x
#define THREAD threadIdx.x
#define THREADS 256
#define WORD(i) words.at[i]
#define KERNEL(name, count) \
  struct Words { long long at[count]; }; \
  extern "C" __global__ void __launch_bounds__(THREADS) name(const Words words)
#define FUNCTION_OF __device__ __forceinline__
#define FUNCTION template <typename T> FUNCTION_OF

FUNCTION_OF unsigned bits_of(float x) { return __float_as_uint(x); }
FUNCTION_OF float number_of(unsigned bits) { return __uint_as_float(bits); }
FUNCTION_OF double number_of(unsigned long long bits) { return __longlong_as_double((long long)bits); }

struct Half { unsigned short bits; };

FUNCTION_OF float value_of(Half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
FUNCTION_OF void keep(Half& y, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
FUNCTION_OF float add(float a, float b) { return __fadd_rn(a, b); }
FUNCTION_OF float sub(float a, float b) { return __fsub_rn(a, b); }
FUNCTION_OF float mul(float a, float b) { return __fmul_rn(a, b); }
FUNCTION_OF double add(double a, double b) { return __dadd_rn(a, b); }
FUNCTION_OF double sub(double a, double b) { return __dsub_rn(a, b); }
FUNCTION_OF double mul(double a, double b) { return __dmul_rn(a, b); }
)";
}

// Of memory, and of ops whose meaning is the same wherever a compiler runs. Composed ops are written as in
// PyTorch's kernels, whose compiler contracts them alike.
const char* common_language() {
  return R"(
struct Bool { unsigned char bits; };
struct BFloat16 { unsigned short bits; };

FUNCTION_OF float value_of(BFloat16 x) { return number_of((unsigned)x.bits << 16); }
FUNCTION_OF bool value_of(Bool x) { return x.bits != 0; }
FUNCTION T value_of(T x) { return x; }

FUNCTION_OF void keep(BFloat16& y, float x) {
  const unsigned bits = bits_of(x);
  y.bits = x != x ? 0x7fc0 : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
FUNCTION_OF void keep(Bool& y, bool x) { y.bits = x; }
FUNCTION void keep(T& y, T x) { y = x; }

template <typename Stored> FUNCTION_OF float rounded(float x) {
  Stored y;
  keep(y, x);
  return value_of(y);
}

template <typename T, int width> struct alignas(sizeof(T) * width) Pack { T at[width]; };

template <int width, typename T, typename V> FUNCTION_OF void load(V (&x)[width], const T* from) {
  const Pack<T, width> pack = *(const Pack<T, width>*)from;
#pragma unroll
  for (int k = 0; k < width; ++k) x[k] = value_of(pack.at[k]);
}
template <int width, typename T, typename V> FUNCTION_OF void load_same(V (&x)[width], const T* from) {
  const V value = value_of(*from);
#pragma unroll
  for (int k = 0; k < width; ++k) x[k] = value;
}
template <int width, typename T, typename V> FUNCTION_OF void load_apart(V (&x)[width], const T* from, long long stride) {
#pragma unroll
  for (int k = 0; k < width; ++k) x[k] = value_of(from[k * stride]);
}
template <int width, typename T, typename V> FUNCTION_OF void store(T* to, const V (&y)[width]) {
  Pack<T, width> pack;
#pragma unroll
  for (int k = 0; k < width; ++k) keep(pack.at[k], y[k]);
  *(Pack<T, width>*)to = pack;
}
template <int width, typename T, typename V> FUNCTION_OF void store_apart(T* to, const V (&y)[width], long long stride) {
#pragma unroll
  for (int k = 0; k < width; ++k) keep(to[k * stride], y[k]);
}

template <typename To> struct Cast {
  template <typename From> static FUNCTION_OF To of(From x) { return (To)x; }
};
template <> struct Cast<bool> {
  template <typename From> static FUNCTION_OF bool of(From x) { return x != (From)0; }
};
template <typename To, typename From> FUNCTION_OF To cast(From x) { return Cast<To>::of(x); }

FUNCTION_OF int add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
FUNCTION_OF int sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
FUNCTION_OF int mul(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
FUNCTION_OF long long add(long long a, long long b) { return (long long)((unsigned long long)a + (unsigned long long)b); }
FUNCTION_OF long long sub(long long a, long long b) { return (long long)((unsigned long long)a - (unsigned long long)b); }
FUNCTION_OF long long mul(long long a, long long b) { return (long long)((unsigned long long)a * (unsigned long long)b); }
FUNCTION_OF bool add(bool a, bool b) { return a || b; }
FUNCTION_OF bool mul(bool a, bool b) { return a && b; }

FUNCTION T divide(T a, T b) { return a / b; }
FUNCTION T neg(T x) { return -x; }
FUNCTION T absolute(T x) { return x < 0 ? -x : x; }
FUNCTION_OF float absolute(float x) { return fabsf(x); }
FUNCTION_OF double absolute(double x) { return fabs(x); }
FUNCTION T reciprocal(T x) { return (T)1 / x; }
FUNCTION_OF float square_root(float x) { return sqrtf(x); }
FUNCTION_OF double square_root(double x) { return sqrt(x); }
FUNCTION_OF float exponential(float x) { return expf(x); }
FUNCTION_OF double exponential(double x) { return exp(x); }
FUNCTION_OF float logarithm(float x) { return logf(x); }
FUNCTION_OF double logarithm(double x) { return log(x); }
FUNCTION_OF float sine(float x) { return sinf(x); }
FUNCTION_OF double sine(double x) { return sin(x); }
FUNCTION_OF float cosine(float x) { return cosf(x); }
FUNCTION_OF double cosine(double x) { return cos(x); }
FUNCTION_OF float hyperbolic_tangent(float x) { return tanhf(x); }
FUNCTION_OF double hyperbolic_tangent(double x) { return tanh(x); }
FUNCTION_OF float error_function(float x) { return erff(x); }
FUNCTION_OF double error_function(double x) { return erf(x); }
FUNCTION_OF float round_down(float x) { return floorf(x); }
FUNCTION_OF double round_down(double x) { return floor(x); }
FUNCTION_OF float round_up(float x) { return ceilf(x); }
FUNCTION_OF double round_up(double x) { return ceil(x); }
FUNCTION T sigmoid(T x) { return (T)1 / ((T)1 + exponential(-x)); }
FUNCTION T silu(T x) { return x / ((T)1 + exponential(-x)); }
FUNCTION T relu(T x) { return x != x ? x : (x > (T)0 ? x : (T)0); }

FUNCTION bool is_nan(T x) { return x != x; }
FUNCTION bool logical_not(T x) { return x == (T)0; }
FUNCTION bool logical_and(T a, T b) { return a != (T)0 && b != (T)0; }
FUNCTION bool logical_or(T a, T b) { return a != (T)0 || b != (T)0; }
FUNCTION bool logical_xor(T a, T b) { return (a != (T)0) != (b != (T)0); }
FUNCTION bool equal(T a, T b) { return a == b; }
FUNCTION bool greater(T a, T b) { return a > b; }
FUNCTION bool greater_or_equal(T a, T b) { return a >= b; }
FUNCTION bool less(T a, T b) { return a < b; }
FUNCTION bool less_or_equal(T a, T b) { return a <= b; }
FUNCTION T maximum(T a, T b) { return a != a ? a : (b != b ? b : (a < b ? b : a)); }
FUNCTION T minimum(T a, T b) { return a != a ? a : (b != b ? b : (b < a ? b : a)); }
FUNCTION T where(bool condition, T a, T b) { return condition ? a : b; }
FUNCTION T masked_scale(T x, bool mask, T scale) { return mul(mul((T)(mask ? 1 : 0), x), scale); }

FUNCTION T gelu(T x) { return x * (T)0.5 * ((T)1 + error_function(x * (T)0.70710678118654752440)); }
FUNCTION T gelu_tanh(T x) {
  const T beta = (T)(1.41421356237309504880 * 1.12837916709551257390 * 0.5), kappa = (T)0.044715;
  const T cube = x * x * x, inner = beta * (x + kappa * cube);
  return (T)0.5 * x * ((T)1 + hyperbolic_tangent(inner));
}
FUNCTION T gelu_gradient(T dy, T x) {
  const T beta = (T)(1.12837916709551257390 * 0.70710678118654752440 * 0.5);
  const T below = (T)0.5 * ((T)1 + error_function(x * (T)0.70710678118654752440));
  const T density = exponential((T)-0.5 * x * x) * beta;
  return dy * (below + x * density);
}
FUNCTION T gelu_tanh_gradient(T dy, T x) {
  const T beta = (T)(1.41421356237309504880 * 1.12837916709551257390 * 0.5), kappa = (T)0.044715;
  const T square = x * x, cube = square * x, tangent = hyperbolic_tangent(beta * (x + kappa * cube));
  const T left = (T)0.5 * x, of_left = (T)0.5 * ((T)1 + tangent);
  const T of_tangent = (T)1 - tangent * tangent, of_inner = beta * ((T)1 + (T)3 * kappa * square);
  return dy * (of_left + left * of_tangent * of_inner);
}
FUNCTION T relu_gradient(T dy, T y) { return y <= (T)0 ? (T)0 : dy; }
FUNCTION T tanh_gradient(T dy, T y) { return dy * ((T)1 - y * y); }
FUNCTION T sigmoid_gradient(T dy, T y) { return dy * ((T)1 - y) * y; }
FUNCTION T silu_gradient(T dy, T x) {
  const T share = sigmoid(x);
  return dy * share * ((T)1 + x * ((T)1 - share));
}
)";
}

}  // namespace rekindle::fusion
