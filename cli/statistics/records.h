// The statistics that a training run has written, one record a tensor: docs/statistics.md has the format.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "src/base/result.h"

namespace rekindle::cli {

// In the order of a step; gradients of outputs and of parameters come as they are computed.
enum class Phase { kParameter, kForward, kBackward, kGradient };

const char* phase_name(Phase phase);

// How many elements x have 2^power <= |x| < 2^(power + 1), by sign.
struct Bin {
  int power = 0;
  std::uint64_t negative = 0, positive = 0;
};

// Which tensor of a run it is: equal in two runs that do the same.
struct Key {
  std::int64_t step = 0;
  Phase phase = Phase::kParameter;
  std::string name;
  int output = -1;  // of a module; -1 for others
  int call = 0;     // of the module, within the step
  int again = 0;    // how often all of the above came before: a backward that is run twice

  auto operator<=>(const Key&) const = default;
};

// Statistics of the finite elements; NaN where there are none.
struct Statistics {
  std::uint64_t count = 0, nans = 0, infs = 0, zeros = 0;
  double min = 0, max = 0, mean = 0, std = 0;
  double norm = 0;  // infinite where double precision overflows
  std::vector<Bin> histogram;

  std::uint64_t finite() const { return count - nans - infs; }
  double rms() const;
  double largest() const;  // absolute value
};

struct Tensor {
  Key key;
  std::string module, dtype;  // module: the class; empty for an inspected tensor
  std::vector<std::int64_t> shape;
  Statistics values;
};

// Holds the records of one process, from one file.
struct Run {
  std::string file;
  int rank = 0, world = 1;
  std::string model;
  std::map<std::int64_t, std::string> modes;  // of the steps: "training", "evaluation"
  std::vector<Tensor> tensors;                // by step, parameters, outputs, gradients; else as written
  bool is_cut = false;                        // ends in the midst of a line, or at max_bytes
};

// kNotFound, kCorruption with file and line, or kUnsupported for another version.
Result<Run> read_run(const std::string& file);

// The runs of a directory, by rank, or the one of a file. kNotFound where there is none, with the remedy.
Result<std::vector<Run>> read_runs(const std::string& path);

// "step 3, forward, body.0 (Linear)": with output and call where they are not the first.
std::string title(const Tensor& tensor);
// The name, "(the module)" for the module that was subscribed to.
std::string name_of(const Tensor& tensor);

// The line of a file that `read_run` reads back.
nlohmann::ordered_json record_of(const Tensor& tensor);

}  // namespace rekindle::cli
