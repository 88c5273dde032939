// The tiers "http" and "https": a web server that answers GET and stores what is PUT below a URL, as nginx
// with its DAV module does; and "bazel+http" and "bazel+https": a cache of Bazel's HTTP protocol
// (bazel-remote), which wants names of 64 hexadecimal digits and, unless it is told otherwise, checks what is
// in cas/: all lies in ac/ there.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "export_cache/tiers/http_client.h"
#include "export_cache/tiers/remote_tier.h"

namespace rekindle {
namespace {

using PathOf = std::string (*)(RemoteTier::Space space, const Digest& key);

std::string plain_path(RemoteTier::Space space, const Digest& key) {
  return std::string(space_name(space)) + "/" + key.hex();
}

// A key has 32 digits; the other 32 tell the spaces apart.
std::string bazel_path(RemoteTier::Space space, const Digest& key) {
  return "ac/" + key.hex() + std::string(32, space == RemoteTier::Space::kManifests ? 'a' : 'c');
}

Error refused(const std::string& verb, const std::string& url, long status) {
  return io_error("the server did not " + verb + " " + url + ": HTTP status " + std::to_string(status));
}

class HttpTier : public RemoteTier {
 public:
  HttpTier(std::string base, PathOf path_of) : base_(std::move(base)), path_of_(path_of) {}

  Result<std::optional<std::string>> get(Space space, const Digest& key) override {
    const std::string url = base_ + path_of_(space, key);
    REKINDLE_ASSIGN_OR_RETURN(HttpAnswer answer, http_get(url, kMostStoredBytes));
    if (answer.status == 404 || answer.status == 410) return std::optional<std::string>();
    if (answer.status != 200) return refused("send", url, answer.status);
    return std::optional(std::move(answer.body));
  }

  Status put(Space space, const Digest& key, std::string_view bytes) override {
    const std::string url = base_ + path_of_(space, key);
    REKINDLE_ASSIGN_OR_RETURN(const HttpAnswer answer, http_put(url, bytes));
    if (answer.status < 200 || answer.status > 299) return refused("store", url, answer.status);
    return {};
  }

 private:
  const std::string base_;  // ends in "/"
  const PathOf path_of_;
};

Result<std::unique_ptr<RemoteTier>> make_tier(std::string_view scheme, const std::string& place,
                                              PathOf path_of) {
  const bool is_url = !place.empty() && place.front() != '/' && place.find_first_of("?#\\") == place.npos &&
                      std::ranges::none_of(place, [](unsigned char c) { return std::isspace(c) != 0; });
  if (!is_url) {
    return invalid_argument("'" + std::string(scheme) + "://" + place +
                            "' names no host and path; write it like " + std::string(scheme) +
                            "://cache.example:8080/rekindle, or file:///shared/rekindle");
  }
  if (place.find('@') < place.find('/')) {
    return invalid_argument("a user's name and password in a " + std::string(scheme) +
                            ":// place would be seen in logs; write them to ~/.netrc");
  }
  std::string base = std::string(scheme) + "://" + place;
  if (base.back() != '/') base += '/';
  return std::unique_ptr<RemoteTier>(std::make_unique<HttpTier>(std::move(base), path_of));
}

Result<std::unique_ptr<RemoteTier>> make_http_tier(const std::string& place) {
  return make_tier("http", place, plain_path);
}

Result<std::unique_ptr<RemoteTier>> make_https_tier(const std::string& place) {
  return make_tier("https", place, plain_path);
}

Result<std::unique_ptr<RemoteTier>> make_bazel_http_tier(const std::string& place) {
  return make_tier("http", place, bazel_path);
}

Result<std::unique_ptr<RemoteTier>> make_bazel_https_tier(const std::string& place) {
  return make_tier("https", place, bazel_path);
}

REKINDLE_TIER("http", make_http_tier);
REKINDLE_TIER("https", make_https_tier);
REKINDLE_TIER("bazel+http", make_bazel_http_tier);
REKINDLE_TIER("bazel+https", make_bazel_https_tier);

}  // namespace
}  // namespace rekindle
