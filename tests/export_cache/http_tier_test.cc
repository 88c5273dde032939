// What a web server may answer to a tier, and what becomes of it.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "export_cache/export_cache.h"
#include "export_cache/tiers/http_client.h"
#include "export_cache/tiers/remote.h"
#include "src/base/log.h"
#include "tests/export_cache/http_server.h"
#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::HttpServer;
using rekindle::testing::make_entry;
using rekindle::testing::TempDir;
using Space = RemoteTier::Space;

namespace {

const Digest kKey = digest_of("key");

std::unique_ptr<RemoteTier> tier_at(const std::string& place, const std::string& scheme = "http") {
  return *(*remote_tiers().find(scheme))(place);
}

// The error of reading and of writing there.
std::pair<Error, Error> errors_at(const std::string& place) {
  const auto tier = tier_at(place);
  const auto read = tier->get(Space::kObjects, kKey);
  const auto written = tier->put(Space::kObjects, kKey, "bytes");
  REQUIRE(!read.ok());
  REQUIRE(!written.ok());
  return {read.error(), written.error()};
}

}  // namespace

TEST_CASE("an answer of a web server that is no record is an error that names it", "[export_cache]") {
  HttpServer server(HttpServer::Names::kPlain);
  for (const std::string status : {"201", "304", "401", "500", "503"}) {
    INFO(status);
    const auto tier = tier_at(server.place() + "/status/" + status);
    const auto read = tier->get(Space::kManifests, kKey);
    REQUIRE(read.error().code == ErrorCode::kIo);
    REQUIRE(read.error().message.ends_with("ac/" + kKey.hex() + ": HTTP status " + status));
    REQUIRE(tier->put(Space::kManifests, kKey, "bytes").ok() == (status == "201"));
  }
  for (const std::string status : {"404", "410"})
    REQUIRE(!tier_at(server.place() + "/status/" + status)->get(Space::kObjects, kKey)->has_value());
}

TEST_CASE("a server that is not there is an error that names it", "[export_cache]") {
  std::string gone;
  {
    const HttpServer server(HttpServer::Names::kPlain);
    gone = server.place();
  }
  for (const Error& error : {errors_at(gone).first, errors_at(gone).second}) {
    REQUIRE(error.code == ErrorCode::kIo);
    REQUIRE(error.message.find("cannot ask http://" + gone + "/cas/" + kKey.hex() + ": ") == 0);
  }
}

TEST_CASE("an answer that ends early, or does not end, is an error", "[export_cache]") {
  HttpServer server(HttpServer::Names::kPlain);
  REQUIRE(tier_at(server.place() + "/cut")->get(Space::kObjects, kKey).error().code == ErrorCode::kIo);
  REQUIRE(tier_at(server.place())->put(Space::kObjects, kKey, std::string(1000, 'x')).ok());
  const std::string url = "http://" + server.place() + "/cas/" + kKey.hex();
  REQUIRE(http_get(url, 1000)->body.size() == 1000);
  REQUIRE(http_get(url, 999).error().code == ErrorCode::kCorruption);
}

TEST_CASE("redirections are followed", "[export_cache]") {
  HttpServer server(HttpServer::Names::kPlain);
  REQUIRE(tier_at(server.place() + "/here/")->put(Space::kObjects, kKey, "bytes").ok());
  REQUIRE(**tier_at(server.place() + "/moved/here")->get(Space::kObjects, kKey) == "bytes");
}

TEST_CASE("a certificate that nobody vouches for is refused", "[export_cache]") {
  HttpServer server(HttpServer::Names::kPlain, true);
  const auto tier = tier_at(server.place(), "https");
  REQUIRE(tier->put(Space::kObjects, kKey, "bytes").ok());
  unsetenv("SSL_CERT_FILE");
  REQUIRE(tier->get(Space::kObjects, kKey).error().code == ErrorCode::kIo);
}

TEST_CASE("a place that is no URL is refused, and so are secrets in it", "[export_cache]") {
  for (const char* wrong :
       {"http://", "http:///path", "https://host/a?b", "http://host/a b", "http://me:s3cr3t@host/a"}) {
    INFO(wrong);
    const auto remote = Remote::parse(wrong);
    REQUIRE(!remote.ok());
    REQUIRE(remote.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(remote.error().message.find("s3cr3t") == std::string::npos);
  }
  REQUIRE(!(*Remote::parse("http://host; bazel+https://host:1/a@b ro"))->empty());
}

TEST_CASE("machines share entries over a web server, and one that fails is left alone", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  HttpServer server(HttpServer::Names::kBazel);
  const std::string remote =
      "bazel+http://" + server.place() + "/team; http://" + server.place() + "/status/503";
  const TempDir dir;
  const auto a = *ExportCache::open({.dir = dir / "a", .remote = remote});
  std::vector<Digest> ids;
  for (int i = 0; i < 5; ++i)
    ids.push_back(*a->store(kKey, std::to_string(i), make_entry(std::to_string(i))));
  REQUIRE(a->remote_stats().uploads == 5);
  REQUIRE(a->remote_stats().failures == 3);
  const auto b = *ExportCache::open({.dir = dir / "b", .remote = remote});
  REQUIRE(b->lookup_remote(kKey)->size() == 5);
  for (int i = 0; i < 5; ++i) REQUIRE((*b->load(ids[i]))->sections == make_entry(std::to_string(i)).sections);
  set_log_level(LogLevel::kInfo);
}
