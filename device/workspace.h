// Workspace: memory of the CPU that grows without moving, for what lives within one operator.
//
// An example: an operator needs 10 MB and then, with these still in use, 30 MB: reach(10 MB) and reach(40 MB)
// give bytes behind the same address. The next operator finds them there, so that the system's pages are
// asked for once.
#pragma once

#include <cstddef>
#include <memory>

namespace rekindle::device {

class Workspace {
 public:
  // One that nobody uses, or a new one; null where the process may not have the address space. Thread-safe,
  // as give_back() and release_all() are.
  static std::unique_ptr<Workspace> take();
  static void give_back(std::unique_ptr<Workspace> workspace);
  // Gives the pages of those that nobody uses back to the system; returns their bytes.
  static std::size_t release_all();

  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  char* begin() const { return begin_; }
  // Makes the first `bytes` usable; false where that is too much.
  bool reach(std::size_t bytes);

 private:
  explicit Workspace(char* begin) : begin_(begin) {}
  // Gives back the pages behind the first `bytes`.
  std::size_t shrink(std::size_t bytes);

  char* const begin_;
  std::size_t usable_ = 0;
  std::size_t recent_ = 0;  // the most that was used since `takes_` was 0
  int takes_ = 0;
};

}  // namespace rekindle::device
