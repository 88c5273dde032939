# Third-party packages. Only the rooms named in docs/contributing.md may link them.
find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(RocksDB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_library(REKINDLE_XXHASH xxhash REQUIRED)
find_library(REKINDLE_ZSTD zstd REQUIRED)
