// The tier "redis": a Redis server, or one that speaks its protocol, under the keys rekindle/ac/<prekey> and
// rekindle/cas/<id>.
//
//   redis://<host or [address]>[":"<port>]["/"<database>]      port 6379, database 0; the password is in
//   REDISCLI_AUTH
//
// The server may evict what it likes: a key that is gone is a miss. It takes no value above 512 MB.
#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "export_cache/tiers/broken_pipe.h"
#include "export_cache/tiers/remote_tier.h"

namespace rekindle {
namespace {

constexpr timeval kToConnect{.tv_sec = 5, .tv_usec = 0}, kStalled{.tv_sec = 10, .tv_usec = 0};

struct RedisPlace {
  std::string host;
  int port = 6379;
  int database = 0;
};

using Connection = std::unique_ptr<redisContext, decltype(&redisFree)>;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

std::optional<int> number_in(std::string_view text, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > most)
    return std::nullopt;
  return number;
}

class RedisTier : public RemoteTier {
 public:
  explicit RedisTier(RedisPlace place)
      : place_(std::move(place)), name_(place_.host + ":" + std::to_string(place_.port)) {}

  Result<std::optional<std::string>> get(Space space, const Digest& key) override {
    const BrokenPipeIgnored guard;
    REKINDLE_ASSIGN_OR_RETURN(const Connection connection, connect());
    REKINDLE_ASSIGN_OR_RETURN(const Reply reply, ask(*connection, {"GET", name_of(space, key)}));
    if (reply->type == REDIS_REPLY_NIL) return std::optional<std::string>();
    return std::optional(std::string(reply->str, reply->len));
  }

  // One connection a call: nothing is left for a forked process to share.
  Status put(Space space, const Digest& key, std::string_view bytes) override {
    const BrokenPipeIgnored guard;
    REKINDLE_ASSIGN_OR_RETURN(const Connection connection, connect());
    const auto reply = ask(*connection, {"SET", name_of(space, key), bytes});
    return reply.ok() ? Status() : Status(reply.error());
  }

 private:
  static std::string name_of(Space space, const Digest& key) {
    return std::string("rekindle/") + space_name(space) + "/" + key.hex();
  }

  Error failed(const std::string& why) const { return io_error("Redis at " + name_ + ": " + why); }

  Result<Connection> connect() const {
    Connection connection(redisConnectWithTimeout(place_.host.c_str(), place_.port, kToConnect), redisFree);
    if (connection == nullptr) return failed("no memory");
    if (connection->err != 0) return failed(connection->errstr);
    redisSetTimeout(connection.get(), kStalled);
    if (const char* password = std::getenv("REDISCLI_AUTH")) {
      if (const auto reply = ask(*connection, {"AUTH", password}); !reply.ok()) return reply.error();
    }
    if (place_.database != 0) {
      const auto reply = ask(*connection, {"SELECT", std::to_string(place_.database)});
      if (!reply.ok()) return reply.error();
    }
    return connection;
  }

  // A status, a string or nothing; what the server calls an error is one.
  Result<Reply> ask(redisContext& connection, const std::vector<std::string_view>& words) const {
    std::vector<const char*> begins;
    std::vector<std::size_t> lengths;
    for (const std::string_view word : words) {
      begins.push_back(word.data());
      lengths.push_back(word.size());
    }
    Reply reply(static_cast<redisReply*>(
        redisCommandArgv(&connection, static_cast<int>(words.size()), begins.data(), lengths.data())));
    if (reply == nullptr) return failed(connection.errstr);
    if (reply->type == REDIS_REPLY_ERROR) return failed(std::string(reply->str, reply->len));
    if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_STRING &&
        reply->type != REDIS_REPLY_NIL) {
      return failed("an answer of another kind than was asked for");
    }
    return reply;
  }

  const RedisPlace place_;
  const std::string name_;
};

std::optional<RedisPlace> read_place(std::string_view text) {
  RedisPlace place;
  if (const std::size_t slash = text.find('/'); slash != text.npos) {
    const auto database = number_in(text.substr(slash + 1), 1'000'000);
    if (!database) return std::nullopt;
    place.database = *database;
    text = text.substr(0, slash);
  }
  if (const std::size_t colon = text.rfind(':'); colon != text.npos && !text.ends_with(']')) {
    const auto port = number_in(text.substr(colon + 1), 65535);
    if (!port) return std::nullopt;
    place.port = *port;
    text = text.substr(0, colon);
  }
  if (text.starts_with('[') && text.ends_with(']')) {
    text = text.substr(1, text.size() - 2);  // an address of IPv6
  } else if (text.find(':') != text.npos) {
    return std::nullopt;
  }
  place.host = text;
  if (text.empty() || text.find_first_of(" \t[]") != text.npos) return std::nullopt;
  return place;
}

Result<std::unique_ptr<RemoteTier>> make_redis_tier(const std::string& place) {
  if (place.find('@') != place.npos) {
    return invalid_argument(
        "a password in a redis:// place would be seen in logs; put it into the variable REDISCLI_AUTH");
  }
  auto parts = read_place(place);
  if (!parts) {
    return invalid_argument("'redis://" + place + "' names no host, port and database; write it like " +
                            "redis://cache.example:6379/0, or file:///shared/rekindle");
  }
  return std::unique_ptr<RemoteTier>(std::make_unique<RedisTier>(*std::move(parts)));
}

REKINDLE_TIER("redis", make_redis_tier);

}  // namespace
}  // namespace rekindle
