// Compares three places for the bytes of an entry: inside of RocksDB's tables, in its blob files, and in a
// file of their own beside the database: blob_bench [DIR]. docs/decisions/0007 has the figures.
//
// Every operation opens and closes the database, as the cache does. Written against RocksDB itself, so that
// the comparison can be repeated with another release.
#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "export_cache/files/directory.h"
#include "export_cache/files/files.h"

namespace fs = std::filesystem;
using namespace rekindle;

namespace {

enum class Place { kTables, kBlobFiles, kFiles };
constexpr std::pair<Place, const char*> kPlaces[] = {
    {Place::kTables, "tables"}, {Place::kBlobFiles, "blob files"}, {Place::kFiles, "files"}};

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

void require(const rocksdb::Status& status) {
  if (!status.ok()) give_up(status.ToString());
}
void require(const Status& status) {
  if (!status.ok()) give_up(status.error().message);
}

class SilentLogger : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::Options options_for(Place place) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.info_log = std::make_shared<SilentLogger>();
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 4 << 20;
  options.max_open_files = 256;
  options.skip_stats_update_on_db_open = true;
  options.stats_dump_period_sec = options.stats_persist_period_sec = 0;
  options.enable_blob_files = place == Place::kBlobFiles;
  options.min_blob_size = 4 << 10;
  options.enable_blob_garbage_collection = true;
  options.blob_garbage_collection_age_cutoff = 1.0;
  options.blob_garbage_collection_force_threshold = 0.3;
  return options;
}

class Store {
 public:
  Store(std::string dir, Place place) : dir_(std::move(dir)), place_(place) {
    fs::create_directories(dir_ + "/objects");
  }

  void put(const std::string& key, const std::string& bytes) { put_all({{key, bytes}}); }

  void put_all(const std::vector<std::pair<std::string, std::string>>& items) {
    const auto db = open_for_writing();
    rocksdb::WriteBatch batch;
    for (const auto& [key, bytes] : items) {
      if (place_ == Place::kFiles) require(write_file(file(key), bytes, 0600));
      require(batch.Put(key, place_ == Place::kFiles ? "here" : bytes));
    }
    commit(*db, batch);
  }

  // Empty when absent.
  std::string get(const std::string& key) {
    std::string bytes;
    rocksdb::DB* opened = nullptr;
    if (!rocksdb::DB::OpenForReadOnly(options_for(place_), dir_ + "/db", &opened).ok()) return {};
    const std::unique_ptr<rocksdb::DB> db(opened);
    if (!db->Get(rocksdb::ReadOptions(), key, &bytes).ok()) return {};
    if (place_ != Place::kFiles) return bytes;
    const auto read = read_file(file(key), 1 << 30);
    return read.ok() && *read ? **read : std::string();
  }

  void remove(const std::vector<std::string>& keys) {
    const auto db = open_for_writing();
    rocksdb::WriteBatch batch;
    for (const std::string& key : keys) require(batch.Delete(key));
    commit(*db, batch);
    require(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
    for (const std::string& key : keys) {
      if (place_ == Place::kFiles) fs::remove(file(key));
    }
  }

  std::uint64_t disk() const { return disk_bytes(dir_); }

 private:
  std::string file(const std::string& key) const { return dir_ + "/objects/" + key; }
  std::unique_ptr<rocksdb::DB> open_for_writing() {
    rocksdb::DB* opened = nullptr;
    require(rocksdb::DB::Open(options_for(place_), dir_ + "/db", &opened));
    return std::unique_ptr<rocksdb::DB>(opened);
  }
  static void commit(rocksdb::DB& db, rocksdb::WriteBatch& batch) {
    rocksdb::WriteOptions options;
    options.sync = true;
    require(db.Write(options, &batch));
    require(db.Flush(rocksdb::FlushOptions()));
  }

  const std::string dir_;
  const Place place_;
};

std::string noise(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, bytes.data() + i);
  }
  return bytes;
}

template <typename F>
double milliseconds(int runs, const F& f) {
  std::vector<double> all;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f(i);
    all.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::nth_element(all, all.begin() + runs / 2);
  return all[static_cast<std::size_t>(runs / 2)];
}

std::string key_of(int i) { return "key" + std::to_string(1'000'000 + i); }

void bench_many(const std::string& dir, Place place) {
  Store store(dir, place);
  constexpr int kEntries = 10'000, kBatch = 200;
  for (int first = 0; first < kEntries; first += kBatch) {
    std::vector<std::pair<std::string, std::string>> items;
    for (int i = first; i < first + kBatch; ++i)
      items.emplace_back(key_of(i), noise(16 << 10, std::uint64_t(i)));
    if (place == Place::kFiles) {  // without a sync for each: filling is not what is measured
      for (auto& [key, bytes] : items) {
        const int fd = open((dir + "/objects/" + key).c_str(), O_WRONLY | O_CREAT, 0600);
        if (write(fd, bytes.data(), bytes.size()) < 0) give_up("cannot fill");
        close(fd);
        bytes = "here";
      }
      Store(dir, Place::kTables).put_all(items);
    } else {
      store.put_all(items);
    }
  }
  std::printf("  open and get 1 of 10,000 (16 KiB)  %8.2f ms\n",
              milliseconds(51, [&](int i) { store.get(key_of(i * 190)); }));
}

void bench_large(const std::string& dir, Place place) {
  Store store(dir, place);
  constexpr int kEntries = 60;
  std::printf("  put 2 MiB, durable                 %8.2f ms\n",
              milliseconds(kEntries, [&](int i) { store.put(key_of(i), noise(2 << 20, std::uint64_t(i))); }));
  std::printf("  open and get 2 MiB                 %8.2f ms\n",
              milliseconds(kEntries, [&](int i) { store.get(key_of(i)); }));
  std::vector<std::string> half;
  for (int i = 0; i < kEntries; i += 2) half.push_back(key_of(i));
  const double spent = milliseconds(1, [&](int) { store.remove(half); });
  std::printf("  evict every other of 60            %8.2f ms, %.2f of the live bytes on disk\n", spent,
              static_cast<double>(store.disk()) / (kEntries / 2 * double(2 << 20)));
}

[[noreturn]] void write_for_ever(const std::string& dir, Place place, int first) {
  Store store(dir, place);
  for (int i = first;; ++i) {
    store.put(key_of(i), noise(200'000, std::uint64_t(i)));
    if (write(STDOUT_FILENO, &i, sizeof(i)) != sizeof(i)) std::exit(1);
  }
}

// Kills a writer again and again; what it had acknowledged must be there.
void bench_kills(const std::string& dir, Place place) {
  int acknowledged = 0, lost = 0;
  for (int round = 0; round < 20; ++round) {
    int ends[2];
    if (pipe(ends) != 0) give_up("pipe");
    const pid_t child = fork();
    if (child == 0) {  // a program of its own: RocksDB's threads do not survive a fork
      dup2(ends[1], STDOUT_FILENO);
      execl("/proc/self/exe", "writer", dir.c_str(), std::to_string(int(place)).c_str(),
            std::to_string(round * 1000).c_str(), static_cast<char*>(nullptr));
      _exit(1);
    }
    close(ends[1]);
    std::vector<int> keys;
    const auto next = [&] {
      int i = 0;
      const bool more = read(ends[0], &i, sizeof(i)) == sizeof(i);
      if (more) keys.push_back(i);
      return more;
    };
    next();
    usleep(useconds_t(13'000 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (next()) continue;
    close(ends[0]);
    Store store(dir, place);
    for (const int i : keys) lost += store.get(key_of(i)) == noise(200'000, std::uint64_t(i)) ? 0 : 1;
    acknowledged += static_cast<int>(keys.size());
  }
  std::printf("  20 kills: lost %d of %d acknowledged\n", lost, acknowledged);
}

// One flipped byte in the largest file: how many of 30 entries are still right.
void bench_rot(const std::string& dir, Place place) {
  Store store(dir, place);
  std::vector<std::pair<std::string, std::string>> items;
  for (int i = 0; i < 30; ++i) items.emplace_back(key_of(i), noise(200'000, std::uint64_t(i)));
  store.put_all(items);
  fs::path largest;
  for (const auto& file : fs::recursive_directory_iterator(dir)) {
    if (file.is_regular_file() && (largest.empty() || file.file_size() > fs::file_size(largest)))
      largest = file;
  }
  const int fd = open(largest.c_str(), O_RDWR);
  char byte = 0;
  const auto at = static_cast<off_t>(fs::file_size(largest) / 2);
  if (pread(fd, &byte, 1, at) != 1) give_up("pread");
  byte = static_cast<char>(byte ^ 0xFF);
  if (pwrite(fd, &byte, 1, at) != 1) give_up("pwrite");
  close(fd);
  int right = 0;
  for (const auto& [key, bytes] : items) right += store.get(key) == bytes ? 1 : 0;
  rocksdb::DB* opened = nullptr;
  require(rocksdb::DB::Open(options_for(place), dir + "/db", &opened));
  const std::unique_ptr<rocksdb::DB> db(opened);
  rocksdb::CompactRangeOptions all;
  all.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
  all.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
  const auto compacted = db->CompactRange(all, nullptr, nullptr);
  const auto written = db->Put(rocksdb::WriteOptions(), "another", "value");
  std::printf("  one flipped byte: %d of 30 entries right; compaction: %s; a put after it: %s\n", right,
              compacted.ok() ? "OK" : compacted.ToString().substr(0, 40).c_str(),
              written.ToString().substr(0, 40).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) write_for_ever(argv[1], Place(std::atoi(argv[2])), std::atoi(argv[3]));
  const std::string base = std::string(argc > 1 ? argv[1] : "/var/tmp") + "/rekindle-blob-bench";
  for (const auto& [place, name] : kPlaces) {
    std::printf("%s\n", name);
    const auto in_fresh_directory = [&](void (*bench)(const std::string&, Place)) {
      fs::remove_all(base);
      fs::create_directories(base);
      bench(base, place);
      std::fflush(stdout);
    };
    in_fresh_directory(bench_many);
    in_fresh_directory(bench_large);
    in_fresh_directory(bench_kills);
    in_fresh_directory(bench_rot);
  }
  fs::remove_all(base);
  return 0;
}
