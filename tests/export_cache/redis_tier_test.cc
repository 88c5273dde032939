// What a Redis server may answer to a tier, and what becomes of it.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "export_cache/export_cache.h"
#include "export_cache/tiers/broken_pipe.h"
#include "export_cache/tiers/remote.h"
#include "tests/export_cache/redis_server.h"
#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::make_entry;
using rekindle::testing::RedisServer;
using rekindle::testing::TempDir;
using Space = RemoteTier::Space;

namespace {

const Digest kKey = digest_of("key");

std::vector<RedisServer::Kind> kinds() {
  std::vector<RedisServer::Kind> all{RedisServer::Kind::kOurs};
  if (RedisServer::is_installed()) all.push_back(RedisServer::Kind::kInstalled);
  return all;
}

std::unique_ptr<RemoteTier> tier_at(const std::string& place) {
  return *(*remote_tiers().find("redis"))(place);
}

}  // namespace

TEST_CASE("databases of a Redis server are separate, and one that is not there is an error",
          "[export_cache]") {
  for (const RedisServer::Kind kind : kinds()) {
    const RedisServer server(kind);
    const std::string bytes("\0\r\n*3\r\n$", 8);
    REQUIRE(tier_at(server.place())->put(Space::kObjects, kKey, bytes).ok());
    REQUIRE(**tier_at(server.place() + "/0")->get(Space::kObjects, kKey) == bytes);
    REQUIRE(!tier_at(server.place() + "/0")->get(Space::kManifests, kKey)->has_value());
    REQUIRE(!tier_at(server.place() + "/3")->get(Space::kObjects, kKey)->has_value());
    const auto wrong = tier_at(server.place() + "/99")->get(Space::kObjects, kKey);
    REQUIRE(wrong.error().code == ErrorCode::kIo);
    REQUIRE(wrong.error().message == "Redis at " + server.place() + ": ERR DB index is out of range");
  }
}

TEST_CASE("a Redis server's password is that of its own command", "[export_cache]") {
  for (const RedisServer::Kind kind : kinds()) {
    const RedisServer server(kind, "s3cr3t");
    const auto tier = tier_at(server.place() + "/1");
    REQUIRE(tier->get(Space::kObjects, kKey).error().message.find("NOAUTH") != std::string::npos);
    setenv("REDISCLI_AUTH", "wrong", 1);
    REQUIRE(tier->put(Space::kObjects, kKey, "bytes").error().message.find("WRONGPASS") != std::string::npos);
    setenv("REDISCLI_AUTH", "s3cr3t", 1);
    REQUIRE(tier->put(Space::kObjects, kKey, "bytes").ok());
    REQUIRE(**tier->get(Space::kObjects, kKey) == "bytes");
    unsetenv("REDISCLI_AUTH");
  }
}

TEST_CASE("a Redis server that is gone is an error that names it", "[export_cache]") {
  std::string gone;
  {
    const RedisServer server(RedisServer::Kind::kOurs);
    gone = server.place();
  }
  const auto read = tier_at(gone)->get(Space::kObjects, kKey);
  REQUIRE(read.error().code == ErrorCode::kIo);
  REQUIRE(read.error().message == "Redis at " + gone + ": Connection refused");
}

TEST_CASE("a place that is no Redis server is refused, and so are passwords in it", "[export_cache]") {
  for (const char* wrong :
       {"redis://", "redis:///1", "redis://host:port", "redis://host:70000", "redis://host/a",
        "redis://host:6379/-1", "redis://a b", "redis://::1", "redis://:s3cr3t@host"}) {
    INFO(wrong);
    const auto remote = Remote::parse(wrong);
    REQUIRE(!remote.ok());
    REQUIRE(remote.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(remote.error().message.find("s3cr3t") == std::string::npos);
  }
  REQUIRE(!(*Remote::parse("redis://host; redis://host:1/2 ro; redis://[::1]:6379/0"))->empty());
}

TEST_CASE("machines share entries over a Redis server", "[export_cache]") {
  for (const RedisServer::Kind kind : kinds()) {
    const RedisServer server(kind);
    const TempDir dir;
    const std::string remote = "redis://" + server.place() + "/2";
    const Digest id =
        *(*ExportCache::open({.dir = dir / "a", .remote = remote}))->store(kKey, "seen", make_entry("one"));
    const auto b = *ExportCache::open({.dir = dir / "b", .remote = remote + " ro"});
    REQUIRE(b->lookup_remote(kKey)->at(0).observations == "seen");
    REQUIRE((*b->load(id))->sections == make_entry("one").sections);
  }
}

TEST_CASE("a write to a connection that is closed ends nothing", "[export_cache]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  struct sigaction before, plain{};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &plain, &before);
  {
    const BrokenPipeIgnored guard;
    REQUIRE(write(ends[1], "x", 1) == -1);
  }
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  REQUIRE(sigismember(&blocked, SIGPIPE) == 0);
  sigaction(SIGPIPE, &before, nullptr);
  close(ends[1]);
}
