#include "python/calls/written_memory.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <set>

namespace rekindle::python {

namespace py = pybind11;

namespace {

using Range = std::pair<std::uintptr_t, std::uintptr_t>;

std::vector<py::object> items_of(const py::list& list) {
  std::vector<py::object> items;
  for (const py::handle item : list) items.push_back(py::reinterpret_borrow<py::object>(item));
  return items;
}

std::uintptr_t address_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
}

// Nothing for what has no memory.
Range range_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() == 0 || address_of(tensor) == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const std::uintptr_t begin = address_of(tensor);
  return {begin, begin + static_cast<std::uintptr_t>(last + 1) * tensor.element_size()};
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool overlap(const Range& one, const Range& other) {
  return one.first < other.second && other.first < one.second;
}

const at::Tensor& tensor_of(const py::object& object) {
  if (!THPVariable_Check(object.ptr())) throw py::type_error("what a graph writes is no tensor");
  return THPVariable_Unpack(object.ptr());
}

// Places of ranges that overlap with another, and of tensors that have a storage in common.
std::set<std::ptrdiff_t> shared_among(const std::vector<Range>& ranges,
                                      const std::vector<const void*>& storages) {
  std::set<std::ptrdiff_t> shared;
  std::vector<std::pair<Range, std::ptrdiff_t>> sorted;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i].second) sorted.emplace_back(ranges[i], static_cast<std::ptrdiff_t>(i));
  }
  std::ranges::sort(sorted);
  std::ptrdiff_t last = -1;  // the range that reaches farthest
  std::uintptr_t end = 0;
  for (const auto& [range, i] : sorted) {
    if (range.first < end) shared.insert({last, i});
    if (range.second > end) std::tie(last, end) = std::pair(i, range.second);
  }
  for (std::size_t i = 0; i < storages.size(); ++i) {
    if (storages[i] != nullptr && std::ranges::count(storages, storages[i]) > 1)
      shared.insert(static_cast<std::ptrdiff_t>(i));
  }
  return shared;
}

}  // namespace

WrittenMemory::WrittenMemory(const py::list& state, const py::list& contents,
                             std::vector<std::ptrdiff_t> writes, bool saves, py::object bytes_of)
    : state_(items_of(state)),
      contents_(items_of(contents)),
      writes_(std::move(writes)),
      saves_(saves),
      bytes_of_(std::move(bytes_of)) {
  for (const py::object& tensor : state_) tensor_of(tensor);
}

std::vector<std::uintptr_t> WrittenMemory::addresses() const {
  std::vector<std::uintptr_t> addresses;
  addresses.reserve(state_.size() + contents_.size());
  for (const py::object& object : state_) {
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    if (tensor.layout() == at::kStrided) addresses.push_back(address_of(tensor));
  }
  for (const py::object& object : contents_) {
    if (THPVariable_Check(object.ptr())) addresses.push_back(address_of(THPVariable_Unpack(object.ptr())));
  }
  return addresses;
}

void WrittenMemory::look_at_fixed() {
  fixed_.clear();
  storages_.clear();
  for (const py::object& object : state_) {
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    fixed_.push_back(range_of(tensor));
    if (saves_) storages_.push_back(storage_of(tensor));
  }
  for (const py::object& object : contents_) {
    fixed_.push_back(THPVariable_Check(object.ptr()) ? range_of(THPVariable_Unpack(object.ptr()))
                                                     : bytes_of_(object).cast<Range>());
  }
  const std::set<std::ptrdiff_t> found = shared_among(fixed_, storages_);
  const auto first =
      std::ranges::find_if(writes_, [&](std::ptrdiff_t write) { return found.contains(write); });
  shared_ = first == writes_.end() ? std::nullopt : std::optional(*first);
}

std::optional<std::ptrdiff_t> WrittenMemory::shared(const py::list& arguments) {
  if (auto now = addresses(); !looked_ || now != addresses_) {
    looked_ = false;  // should bytes_of raise
    look_at_fixed();
    addresses_ = std::move(now);
    looked_ = true;
  }
  if (shared_) return shared_;
  std::vector<at::Tensor> given;
  for (const py::handle argument : arguments)
    given.push_back(tensor_of(py::reinterpret_borrow<py::object>(argument)));
  const auto count = static_cast<std::ptrdiff_t>(given.size());
  const auto first = std::ranges::find_if(
      writes_, [&](std::ptrdiff_t write) { return write >= -count && shares(write, given); });
  return first == writes_.end() ? std::nullopt : std::optional(*first);
}

// Whether another tensor has bytes of what is written or, if a backward may read it, is in its storage.
bool WrittenMemory::shares(std::ptrdiff_t write, const std::vector<at::Tensor>& given) const {
  const bool of_state = write >= 0;
  const auto mine =
      of_state ? static_cast<std::size_t>(write) : given.size() - static_cast<std::size_t>(-write);
  const Range range = of_state ? fixed_[mine] : range_of(given[mine]);
  const void* const storage = !saves_ ? nullptr : of_state ? storages_[mine] : storage_of(given[mine]);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!of_state && i == mine) continue;
    if (overlap(range, range_of(given[i])) || (storage != nullptr && storage == storage_of(given[i])))
      return true;
  }
  if (of_state) return false;
  return std::ranges::any_of(fixed_, [&](const Range& other) { return overlap(range, other); }) ||
         (storage != nullptr && std::ranges::find(storages_, storage) != storages_.end());
}

int WrittenMemory::traverse(visitproc visit, void* arg) const {  // the names that Py_VISIT wants
  for (const auto* objects : {&state_, &contents_}) {
    for (const py::object& object : *objects) Py_VISIT(object.ptr());
  }
  Py_VISIT(bytes_of_.ptr());
  return 0;
}

void WrittenMemory::clear() {
  looked_ = false;
  const auto state = std::move(state_), contents = std::move(contents_);
  const py::object bytes_of = std::move(bytes_of_);
  writes_.clear();
}

}  // namespace rekindle::python
