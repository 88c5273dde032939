// The tiers behind the local cache: what every registered one must do, and what the cache does with them.
#include "export_cache/tiers/remote.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <thread>

#include "export_cache/files/directory.h"
#include "export_cache/files/filesystem.h"
#include "src/base/log.h"
#include "tests/export_cache/http_server.h"
#include "tests/export_cache/redis_server.h"
#include "tests/export_cache/support.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::HttpServer;
using rekindle::testing::make_entry;
using rekindle::testing::TempDir;
namespace fs = std::filesystem;
using Space = RemoteTier::Space;

namespace {

const Digest kPrekey = digest_of("prekey");

// A place for a tier of each scheme that is registered; a new scheme fails here until it has one.
std::string place_for(const std::string& scheme, const TempDir& dir) {
  if (scheme == "file") return dir.path();
  if (scheme.ends_with("http") || scheme.ends_with("https")) {
    static std::map<std::string, testing::HttpServer> servers;
    const auto names = scheme.starts_with("bazel") ? HttpServer::Names::kBazel : HttpServer::Names::kPlain;
    const auto [server, made] = servers.try_emplace(scheme, names, scheme.ends_with("https"));
    return server->second.place() + dir.path();
  }
  if (scheme == "redis") {
    static const testing::RedisServer server(testing::RedisServer::Kind::kOurs);
    static std::map<std::string, std::size_t> databases;
    return server.place() + "/" +
           std::to_string(databases.try_emplace(dir.path(), databases.size()).first->second);
  }
  FAIL("tier " << scheme << " has no place to be tested in");
  return {};
}

std::unique_ptr<RemoteTier> make_tier(const std::string& scheme, const std::string& place) {
  auto tier = (*remote_tiers().find(scheme))(place);
  REQUIRE(tier.ok());
  return *std::move(tier);
}

std::unique_ptr<ExportCache> open_shared(const std::string& dir, const std::string& remote) {
  auto cache = ExportCache::open({.dir = dir, .remote = remote});
  REQUIRE(cache.ok());
  return *std::move(cache);
}

}  // namespace

TEST_CASE("every tier keeps, replaces and separates records", "[export_cache]") {
  for (const std::string& scheme : remote_tiers().names()) {
    INFO(scheme);
    const TempDir dir;
    const auto tier = make_tier(scheme, place_for(scheme, dir));
    const Digest key = digest_of("key");
    for (const Space space : {Space::kManifests, Space::kObjects})
      REQUIRE(!tier->get(space, key)->has_value());
    const std::string large(3'000'000, '\0');
    REQUIRE(tier->put(Space::kManifests, key, "one").ok());
    REQUIRE(tier->put(Space::kObjects, key, large).ok());
    REQUIRE(**tier->get(Space::kManifests, key) == "one");
    REQUIRE(**tier->get(Space::kObjects, key) == large);
    REQUIRE(tier->put(Space::kManifests, key, "").ok());
    REQUIRE((*tier->get(Space::kManifests, key))->empty());
    REQUIRE(!tier->get(Space::kManifests, digest_of("another"))->has_value());
    REQUIRE(**make_tier(scheme, place_for(scheme, dir))->get(Space::kObjects, key) == large);
  }
}

TEST_CASE("a reader of any tier sees old bytes or new ones, never a mixture", "[export_cache]") {
  for (const std::string& scheme : remote_tiers().names()) {
    INFO(scheme);
    const TempDir dir;
    const auto tier = make_tier(scheme, place_for(scheme, dir));
    const Digest key = digest_of("key");
    const std::string a(100'000, 'a'), b(200'000, 'b');
    REQUIRE(tier->put(Space::kObjects, key, a).ok());
    std::atomic<bool> done = false;
    std::atomic<int> failures = 0;
    std::thread writer([&] {
      for (int i = 0; i < 10; ++i)
        failures += tier->put(Space::kObjects, key, i % 2 == 0 ? b : a).ok() ? 0 : 1;
      done = true;
    });
    int wrong = 0;
    while (!done) {
      const auto read = tier->get(Space::kObjects, key);
      if (!read.ok() || !*read || (**read != a && **read != b)) ++wrong;
    }
    writer.join();
    REQUIRE(wrong == 0);
    REQUIRE(failures == 0);
  }
}

TEST_CASE("what one machine exports another one finds", "[export_cache]") {
  const TempDir dir;
  fs::create_directory(dir / "shared");
  REQUIRE(chmod((dir / "shared").c_str(), 02775) == 0);
  const std::string remote = "file://" + dir / "shared";
  const Entry entry = make_entry("one");
  const auto a = open_shared(dir / "a", remote);
  const Digest id = *a->store(kPrekey, "observed", entry);
  REQUIRE(a->remote_stats().uploads == 1);
  struct stat info;
  REQUIRE(stat((dir / "shared/cas").c_str(), &info) == 0);
  REQUIRE((info.st_mode & 07777) == 02775);
  REQUIRE(stat((dir / ("shared/cas/" + id.hex())).c_str(), &info) == 0);
  REQUIRE((info.st_mode & 07777) == 0444);
  {
    const auto b = open_shared(dir / "b", remote + " ro");
    REQUIRE(b->lookup(kPrekey)->empty());
    const auto candidates = b->lookup_remote(kPrekey);
    REQUIRE(candidates->size() == 1);
    REQUIRE(candidates->at(0).observations == "observed");
    REQUIRE((*b->load(id))->sections == entry.sections);
    REQUIRE(b->remote_stats() == RemoteStats{.lookups = 1, .hits = 1});
  }
  // It was stored here too, with its candidate.
  const auto b = open_shared(dir / "b", "");
  REQUIRE(b->lookup(kPrekey)->size() == 1);
  REQUIRE(b->load(id)->has_value());
  REQUIRE(b->lookup_remote(kPrekey)->empty());
}

TEST_CASE("two machines under one prekey keep both candidates", "[export_cache]") {
  const TempDir dir;
  fs::create_directory(dir / "shared");
  const std::string remote = "file://" + dir / "shared";
  REQUIRE(open_shared(dir / "a", remote)->store(kPrekey, "a", make_entry("a")).ok());
  REQUIRE(open_shared(dir / "b", remote)->store(kPrekey, "b", make_entry("b")).ok());
  REQUIRE(open_shared(dir / "c", remote)->lookup_remote(kPrekey)->size() == 2);
}

TEST_CASE("rotten bytes in a tier are a counted miss and are replaced by the next export", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  fs::create_directory(dir / "shared");
  const std::string remote = "file://" + dir / "shared";
  const Digest id = *open_shared(dir / "a", remote)->store(kPrekey, "", make_entry("one"));
  for (const std::string& path : {"shared/cas/" + id.hex(), "shared/ac/" + kPrekey.hex()}) {
    REQUIRE(chmod((dir / path).c_str(), 0644) == 0);
    std::string bytes = testing::read_file(dir / path);
    bytes[bytes.size() / 2] ^= 1;
    testing::write_file(dir / path, bytes);
  }
  const auto b = open_shared(dir / "b", remote);
  REQUIRE(b->lookup_remote(kPrekey)->empty());
  REQUIRE(!b->load(id)->has_value());
  REQUIRE(b->remote_stats().corrupt == 2);
  REQUIRE(b->remote_stats().failures == 0);
  REQUIRE(b->store(kPrekey, "", make_entry("one")).ok());
  const auto c = open_shared(dir / "c", remote);
  REQUIRE(c->lookup_remote(kPrekey)->size() == 1);
  REQUIRE(c->load(id)->has_value());
  set_log_level(LogLevel::kInfo);
}

TEST_CASE("a tier that fails is left alone after three failures, and nothing else suffers",
          "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const auto cache = open_shared(dir / "a", "file://" + dir / "missing");
  for (int i = 0; i < 5; ++i) {
    REQUIRE(cache->store(digest_of(std::to_string(i)), "", make_entry(std::to_string(i))).ok());
  }
  REQUIRE(cache->remote_stats().failures == 3);
  REQUIRE(cache->stats()->stores == 5);
  REQUIRE(cache->stats()->store_failures == 0);
  set_log_level(LogLevel::kInfo);
}

TEST_CASE("a list of tiers is read, and a wrong one is named", "[export_cache]") {
  REQUIRE((*Remote::parse(""))->empty());
  REQUIRE((*Remote::parse(" ; "))->empty());
  REQUIRE(!(*Remote::parse("file:///a ro; file:///b"))->empty());
  for (const char* wrong : {"/a", "nosuch:///a", "file://relative", "file:///a; nosuch:///b"}) {
    const auto remote = Remote::parse(wrong);
    REQUIRE(!remote.ok());
    REQUIRE(remote.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(remote.error().message.find("file:///shared/rekindle") != std::string::npos);
  }
  const TempDir dir;
  REQUIRE(ExportCache::open({.dir = dir.path(), .remote = "nosuch:///a"}).error().code ==
          ErrorCode::kInvalidArgument);
}

TEST_CASE("on a network file system the database moves to this machine", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  fs::create_directory(dir / "nfs");
  setenv("XDG_CACHE_HOME", (dir / "local").c_str(), 1);
  const auto probe = [&](const std::string& path) { return path.starts_with(dir / "nfs") ? "nfs4" : "ext4"; };
  const auto cache = ExportCache::open({.dir = dir / "nfs", .remote = "", .filesystem_type = probe});
  REQUIRE(cache.ok());
  REQUIRE((*cache)->dir().starts_with(dir / "local/rekindle/of-"));
  REQUIRE((*cache)->store(kPrekey, "", make_entry("one")).ok());
  REQUIRE(!fs::exists(dir / "nfs/db"));
  REQUIRE(fs::exists(dir / ("nfs/ac/" + kPrekey.hex())));
  const auto forced = ExportCache::open(
      {.dir = dir / "nfs", .remote = "", .allow_network_database = true, .filesystem_type = probe});
  REQUIRE(forced.ok());
  REQUIRE((*forced)->dir() == dir / "nfs");
  unsetenv("XDG_CACHE_HOME");
  set_log_level(LogLevel::kInfo);
}

TEST_CASE("the file system of a path is that of its longest mount point", "[export_cache]") {
  const std::string mounts =
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "30 22 0:40 / /home rw - nfs4 server:/home rw\n"
      "31 30 0:41 / /home/fast rw shared:2 master:1 - xfs /dev/sdb rw\n"
      "32 22 0:42 / /mnt/with\\040space rw - fuse.sshfs host: rw\n"
      "33 22 0:43 / /over rw - tmpfs none rw\n34 22 0:44 / /over rw - cifs //s/x rw\nbroken line\n";
  REQUIRE(mount_type(mounts, "/var/tmp/x") == "ext4");
  REQUIRE(mount_type(mounts, "/home/me/.cache") == "nfs4");
  REQUIRE(mount_type(mounts, "/home/fast/me") == "xfs");
  REQUIRE(mount_type(mounts, "/homeless") == "ext4");
  REQUIRE(mount_type(mounts, "/mnt/with space/x") == "fuse.sshfs");
  REQUIRE(mount_type(mounts, "/over/x") == "cifs");
  REQUIRE(mount_type("", "/x").empty());
  for (const char* type :
       {"nfs", "nfs4", "cifs", "lustre", "gpfs", "9p", "fuse", "fuse.sshfs", "fuse.gcsfuse"}) {
    REQUIRE(is_network_filesystem(type));
  }
  for (const char* type :
       {"ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk", "fuse.fuse-overlayfs", ""}) {
    REQUIRE(!is_network_filesystem(type));
  }
  REQUIRE(!is_network_filesystem(filesystem_type("/proc/self")));
}
