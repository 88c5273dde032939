// ByteWriter and ByteReader: little-endian, length-prefixed encoding for everything that is stored.
//
// The reader never trusts a length: each read checks what is left, and the first failure sticks.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace rekindle {

class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void number(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value,
                sizeof(T));  // x86-64 and AArch64 are little-endian; others are refused by the build
    bytes_.append(raw, sizeof(T));
  }
  void raw(std::string_view data) { bytes_.append(data); }
  // u64 length, then the bytes.
  void string(std::string_view data) {
    number<std::uint64_t>(data.size());
    raw(data);
  }
  const std::string& bytes() const& { return bytes_; }
  std::string take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  // `data` must outlive the reader and every view it hands out.
  explicit ByteReader(std::string_view data) : rest_(data) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T number() {
    T value{};
    std::string_view raw_bytes = raw(sizeof(T));
    if (!failed_) std::memcpy(&value, raw_bytes.data(), sizeof(T));
    return value;
  }
  std::string_view raw(std::uint64_t size) {
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      return {};
    }
    std::string_view head = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return head;
  }
  std::string_view string() { return raw(number<std::uint64_t>()); }
  // A count of items of at least `item_size` bytes each: fails when so many cannot follow.
  std::uint64_t count(std::size_t item_size) {
    const auto n = number<std::uint64_t>();
    if (!failed_ && item_size > 0 && n > rest_.size() / item_size) failed_ = true;
    return failed_ ? 0 : n;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return !failed_ && rest_.empty(); }
  std::size_t remaining() const { return rest_.size(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace rekindle
