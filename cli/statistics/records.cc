#include "cli/statistics/records.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

namespace rekindle::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 4> kPhases = {"parameter", "forward", "backward", "gradient"};
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kVersion = 1;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 62;  // a negative number is more

using Record = nlohmann::json;

// NaN for null.
double number(const Record& record, const char* name) {
  const Record& found = record.at(name);
  return found.is_null() ? kNone : found.get<double>();
}

Phase phase_of(const Record& record) {
  const std::string& name = record.at("phase").get_ref<const std::string&>();
  const auto found = std::ranges::find(kPhases, name);
  if (found == kPhases.end()) throw std::invalid_argument("there is no phase " + name);
  return static_cast<Phase>(found - kPhases.begin());
}

Statistics statistics_of(const Record& record) {
  Statistics values;
  values.count = record.at("count").get<std::uint64_t>();
  if (values.count > kMostElements) throw std::invalid_argument("there is no tensor of so many elements");
  values.nans = record.at("nans").get<std::uint64_t>();
  values.infs = record.at("infs").get<std::uint64_t>();
  if (values.nans + values.infs > values.count) throw std::invalid_argument("more NaNs than elements");
  const double zeros = number(record, "zeros");
  if (!(zeros >= 0 && zeros <= 1)) throw std::invalid_argument("zeros is no share");
  values.zeros = static_cast<std::uint64_t>(std::llround(zeros * double(values.count)));
  values.min = number(record, "min");
  values.max = number(record, "max");
  values.mean = number(record, "mean");
  values.std = number(record, "std");
  values.norm =
      record.at("norm").is_null() ? std::numeric_limits<double>::infinity() : number(record, "norm");
  for (const Record& bin : record.at("histogram")) {
    values.histogram.push_back(
        {bin.at(0).get<int>(), bin.at(1).get<std::uint64_t>(), bin.at(2).get<std::uint64_t>()});
  }
  return values;
}

Tensor tensor_of(const Record& record) {
  Tensor tensor;
  tensor.key.step = record.at("step").get<std::int64_t>();
  tensor.key.phase = phase_of(record);
  tensor.key.name = record.at("name").get<std::string>();
  tensor.key.output = record.at("output").is_null() ? -1 : record.at("output").get<int>();
  tensor.key.call = record.at("call").get<int>();
  tensor.module = record.at("module").is_null() ? "" : record.at("module").get<std::string>();
  tensor.dtype = record.at("dtype").get<std::string>();
  tensor.shape = record.at("shape").get<std::vector<std::int64_t>>();
  tensor.values = statistics_of(record);
  return tensor;
}

Status read_header(const Record& record, Run& run) {
  if (record.value("kind", "") != "run" || record.value("format", "") != "rekindle.statistics") {
    return corruption(run.file +
                      " is no file of statistics: its first line says no format rekindle.statistics");
  }
  if (record.at("version") != kVersion) {
    return unsupported(
        fmt::format("{} has version {} of the format, this program reads {}; use the program that "
                    "belongs to the package which wrote it",
                    run.file, record.at("version").dump(), kVersion));
  }
  run.rank = record.at("rank").get<int>();
  run.world = record.at("world").get<int>();
  run.model = record.at("model").get<std::string>();
  return {};
}

void add_record(const Record& record, Run& run, std::map<Key, int>& seen) {
  const std::string kind = record.at("kind").get<std::string>();
  if (kind == "limit") run.is_cut = true;
  if (kind == "step") {
    run.modes[record.at("step").get<std::int64_t>()] =
        record.at("training").get<bool>() ? "training" : "evaluation";
  }
  if (kind != "tensor") return;
  Tensor tensor = tensor_of(record);
  tensor.key.again = seen[tensor.key]++;
  run.tensors.push_back(std::move(tensor));
}

// Gradients of a step may come after the next one has begun.
void put_in_order(std::vector<Tensor>& tensors) {
  std::ranges::stable_sort(tensors, {}, [](const Tensor& tensor) {
    return std::pair(tensor.key.step, std::min(tensor.key.phase, Phase::kBackward));
  });
}

Status read_lines(std::istream& lines, Run& run) {
  std::map<Key, int> seen;
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    const Record record = Record::parse(line, nullptr, false);
    if (record.is_discarded() && lines.eof() && number > 1) {
      run.is_cut = true;  // the process was killed while it wrote
      break;
    }
    try {
      if (!record.is_object()) throw std::invalid_argument("no JSON object");
      if (number == 1) REKINDLE_RETURN_IF_ERROR(read_header(record, run));
      add_record(record, run, seen);
    } catch (const std::exception& error) {
      return corruption(fmt::format("{}:{} is no record: {}", run.file, number, error.what()));
    }
  }
  if (run.model.empty() && run.tensors.empty() && run.modes.empty()) {
    return corruption(run.file + " is empty; the run that wrote it has not begun");
  }
  put_in_order(run.tensors);
  return {};
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank_") && name.ends_with(".jsonl")) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

const char* phase_name(Phase phase) { return kPhases.at(static_cast<std::size_t>(phase)); }

double Statistics::rms() const {
  if (finite() == 0) return 0;
  return std::isfinite(norm) ? norm / std::sqrt(double(finite())) : std::hypot(mean, std);
}

double Statistics::largest() const { return finite() == 0 ? 0 : std::max(std::abs(min), std::abs(max)); }

Result<Run> read_run(const std::string& file) {
  std::ifstream lines(file);
  if (!lines)
    return not_found(file + " cannot be read; name a file rank_<n>.jsonl that a subscriber has written");
  Run run;
  run.file = file;
  REKINDLE_RETURN_IF_ERROR(read_lines(lines, run));
  return run;
}

Result<std::vector<Run>> read_runs(const std::string& path) {
  std::error_code ignored;
  std::vector<std::string> files = {path};
  if (fs::is_directory(path, ignored)) files = files_in(path);
  if (files.empty()) {
    return not_found(path +
                     " has no statistics: no rank_<n>.jsonl; name the directory of a StatisticsSubscriber");
  }
  std::vector<Run> runs;
  for (const std::string& file : files) {
    REKINDLE_ASSIGN_OR_RETURN(Run run, read_run(file));
    runs.push_back(std::move(run));
  }
  std::ranges::stable_sort(runs, {}, &Run::rank);
  return runs;
}

std::string name_of(const Tensor& tensor) {
  return tensor.key.name.empty() ? "(the module)" : tensor.key.name;
}

std::string title(const Tensor& tensor) {
  const Key& key = tensor.key;
  std::string text = fmt::format("step {}, {}, {}", key.step, phase_name(key.phase), name_of(tensor));
  if (!tensor.module.empty()) text += " (" + tensor.module + ")";
  if (key.output > 0) text += fmt::format(", output {}", key.output);
  if (key.call > 0) text += fmt::format(", call {}", key.call);
  if (key.again > 0) text += fmt::format(", time {}", key.again);
  return text;
}

nlohmann::ordered_json record_of(const Tensor& tensor) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  const Key& key = tensor.key;
  const Statistics& values = tensor.values;
  Json histogram = Json::array();
  for (const Bin& bin : values.histogram) histogram.push_back({bin.power, bin.negative, bin.positive});
  return {{"kind", "tensor"},
          {"step", key.step},
          {"phase", phase_name(key.phase)},
          {"name", key.name},
          {"output", key.output < 0 ? Json() : Json(key.output)},
          {"call", key.call},
          {"module", tensor.module.empty() ? Json() : Json(tensor.module)},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"count", values.count},
          {"nans", values.nans},
          {"infs", values.infs},
          {"zeros", values.count == 0 ? 0.0 : double(values.zeros) / double(values.count)},
          {"min", or_null(values.min)},
          {"max", or_null(values.max)},
          {"mean", or_null(values.mean)},
          {"std", or_null(values.std)},
          {"norm", or_null(values.norm)},
          {"histogram", histogram}};
}

}  // namespace rekindle::cli
