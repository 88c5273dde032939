#include "cli/statistics/merge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

namespace rekindle::cli {
namespace {

double smaller(double a, double b) { return std::fmin(a, b); }  // of a NaN, the other
double larger(double a, double b) { return std::fmax(a, b); }

void add_histogram(std::vector<Bin>& into, const std::vector<Bin>& bins) {
  for (const Bin& bin : bins) {
    const auto found = std::ranges::lower_bound(into, bin.power, {}, &Bin::power);
    if (found == into.end() || found->power != bin.power) {
      into.insert(found, bin);
      continue;
    }
    found->negative += bin.negative;
    found->positive += bin.positive;
  }
}

// Of two sets of elements: those of both.
void add(Statistics& into, const Statistics& other) {
  const double one = double(into.finite()), two = double(other.finite()), all = one + two;
  if (one > 0 && two > 0) {
    const double apart = other.mean - into.mean;
    const double variance = (one * into.std * into.std + two * other.std * other.std) / all +
                            apart * apart * one * two / (all * all);
    into.mean += apart * two / all;
    into.std = std::sqrt(variance);
  } else if (two > 0) {
    into.mean = other.mean;
    into.std = other.std;
  }
  into.min = smaller(into.min, other.min);
  into.max = larger(into.max, other.max);
  into.norm = std::hypot(into.norm, other.norm);
  into.count += other.count;
  into.nans += other.nans;
  into.infs += other.infs;
  into.zeros += other.zeros;
  add_histogram(into.histogram, other.histogram);
}

// Of what is summed over `copies`: what one of them has, on average.
void share(Statistics& values, std::uint64_t copies) {
  values.norm /= std::sqrt(double(copies));
  for (std::uint64_t* count : {&values.count, &values.nans, &values.infs, &values.zeros}) {
    *count = (*count + copies / 2) / copies;
  }
  for (Bin& bin : values.histogram) {
    bin.negative = (bin.negative + copies / 2) / copies;
    bin.positive = (bin.positive + copies / 2) / copies;
  }
}

bool is_copy(const Tensor& tensor) {
  return tensor.key.phase == Phase::kParameter || tensor.key.phase == Phase::kGradient;
}

void add_rows(std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& other) {
  if (shape.empty() || shape.size() != other.size()) return;
  if (std::equal(shape.begin() + 1, shape.end(), other.begin() + 1)) shape[0] += other[0];
}

Status check_complete(const std::vector<Run>& ranks) {
  std::map<int, const Run*> known;
  for (const Run& run : ranks) {
    const auto [found, is_new] = known.try_emplace(run.rank, &run);
    if (!is_new) {
      return invalid_argument(fmt::format("{} and {} are both of rank {}; name each rank of one run once",
                                          found->second->file, run.file, run.rank));
    }
  }
  const int world = std::ranges::max(ranks, {}, &Run::world).world;
  for (int rank = 0; rank < world; ++rank) {
    if (!known.contains(rank)) {
      return invalid_argument(
          fmt::format("{} is of {} ranks, and rank {} is missing; name the files or directories of all",
                      ranks.front().file, world, rank));
    }
  }
  return {};
}

// The last step of which all ranks have the whole: those that were cut lack the end of their last one.
std::int64_t last_step_of_all(const std::vector<Run>& ranks) {
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  for (const Run& run : ranks) {
    if (run.is_cut) last = std::min(last, (run.tensors.empty() ? 0 : run.tensors.back().key.step) - 1);
  }
  return last;
}

void end_with(Run& run, std::int64_t last) {
  std::erase_if(run.tensors, [&](const Tensor& tensor) { return tensor.key.step > last; });
  std::erase_if(run.modes, [&](const auto& mode) { return mode.first > last; });
}

}  // namespace

Result<Run> merge(const std::vector<Run>& ranks) {
  REKINDLE_RETURN_IF_ERROR(check_complete(ranks));
  Run merged = ranks.front();
  merged.rank = 0;
  merged.world = 1;
  std::map<Key, std::size_t> places;
  for (std::size_t i = 0; i < merged.tensors.size(); ++i) places[merged.tensors[i].key] = i;
  std::vector<std::uint64_t> copies(merged.tensors.size(), 1);
  for (const Run& run : std::span(ranks).subspan(1)) {
    merged.is_cut = merged.is_cut || run.is_cut;
    for (const Tensor& tensor : run.tensors) {
      const auto [found, is_new] = places.try_emplace(tensor.key, merged.tensors.size());
      if (is_new) {
        merged.tensors.push_back(tensor);
        copies.push_back(1);
        continue;
      }
      Tensor& into = merged.tensors[found->second];
      if (into.dtype != tensor.dtype) {
        return invalid_argument(fmt::format("{} is {} in {} and {} in {}; these are no ranks of one run",
                                            title(tensor), into.dtype, ranks.front().file, tensor.dtype,
                                            run.file));
      }
      add(into.values, tensor.values);
      if (!is_copy(into)) add_rows(into.shape, tensor.shape);
      ++copies[found->second];
    }
  }
  for (std::size_t i = 0; i < merged.tensors.size(); ++i) {
    if (is_copy(merged.tensors[i])) share(merged.tensors[i].values, copies[i]);
  }
  if (merged.is_cut) end_with(merged, last_step_of_all(ranks));
  return merged;
}

}  // namespace rekindle::cli
