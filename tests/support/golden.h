// Golden files: expected output below tests/golden. REKINDLE_ACCEPT=1 rewrites them, and the test then fails
// once, so that it cannot pass by accident.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace rekindle::testing {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

inline std::string golden_path(const std::string& name) {
  return std::string(REKINDLE_TEST_DATA) + "/" + name;
}

inline void check_golden(const std::string& name, const std::string& actual) {
  const std::string path = golden_path(name);
  if (std::getenv("REKINDLE_ACCEPT") != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, actual);
    FAIL("rewrote " << path << "; review it and run again without REKINDLE_ACCEPT");
  }
  INFO("golden file " << path);
  REQUIRE(read_file(path) == actual);
}

}  // namespace rekindle::testing
