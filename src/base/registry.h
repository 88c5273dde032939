// Registry<T>: named things that register themselves beside their own code, before main().
//
// Filled by static initializers, read-only afterwards; a duplicate name aborts at start-up. Rooms that
// register are built as OBJECT libraries so that no linker drops a registrar. The files of
// tests/golden/registry list the names of the operators and of the gradient rules.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rekindle {

template <typename T>
class Registry {
 public:
  void add(std::string name, T item) {
    const auto [position, added] = items_.emplace(std::move(name), std::move(item));
    if (!added) {
      std::fprintf(stderr, "rekindle: '%s' is registered twice\n", position->first.c_str());
      std::abort();
    }
  }
  // Null when nothing has that name.
  const T* find(std::string_view name) const {
    const auto position = items_.find(name);
    return position == items_.end() ? nullptr : &position->second;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, item] : items_) all.push_back(name);
    return all;
  }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::map<std::string, T, std::less<>> items_;
};

}  // namespace rekindle
