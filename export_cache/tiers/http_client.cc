#include "export_cache/tiers/http_client.h"

#define CURL_DISABLE_TYPECHECK  // its macros want the functions, not pointers to them
#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "export_cache/tiers/broken_pipe.h"

namespace rekindle {
namespace {

constexpr long kConnectSeconds = 5, kStalledSeconds = 10, kStalledBytesPerSecond = 1024,
               kMostRedirections = 5;

// The functions of libcurl's stable interface that are used here.
struct Curl {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
};

template <typename Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Null, once and for all, where there is no libcurl.
const Curl* load_curl() {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  static Curl curl{};
  const bool whole = library != nullptr && find_symbol(library, "curl_global_init", curl.global_init) &&
                     find_symbol(library, "curl_easy_init", curl.easy_init) &&
                     find_symbol(library, "curl_easy_cleanup", curl.easy_cleanup) &&
                     find_symbol(library, "curl_easy_setopt", curl.easy_setopt) &&
                     find_symbol(library, "curl_easy_perform", curl.easy_perform) &&
                     find_symbol(library, "curl_easy_getinfo", curl.easy_getinfo) &&
                     find_symbol(library, "curl_slist_append", curl.slist_append) &&
                     find_symbol(library, "curl_slist_free_all", curl.slist_free_all);
  return whole && curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? &curl : nullptr;
}

struct Download {
  std::string bytes;
  std::uint64_t most = 0;
  bool too_long = false;
};

// libcurl's write function: of bytes that came.
std::size_t take_received(char* bytes, std::size_t size, std::size_t count, void* target) {
  auto& download = *static_cast<Download*>(target);
  download.too_long = download.bytes.size() + size * count > download.most;
  if (download.too_long) return 0;
  download.bytes.append(bytes, size * count);
  return size * count;
}

// libcurl's read function: of bytes that are to go.
std::size_t give_rest(char* buffer, std::size_t size, std::size_t count, void* source) {
  auto& rest = *static_cast<std::string_view*>(source);
  const std::size_t length = std::min(size * count, rest.size());
  std::memcpy(buffer, rest.data(), length);
  rest.remove_prefix(length);
  return length;
}

// One request over a connection of its own: nothing is left for a forked process to share.
class Request {
 public:
  Request(const Curl& curl, const std::string& url)
      : curl_(curl), handle_(curl.easy_init(), curl.easy_cleanup), headers_(nullptr, curl.slist_free_all) {
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirections);
    set(CURLOPT_NOSIGNAL, 1L);  // signals are the user's
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, kStalledBytesPerSecond);
    set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
    set(CURLOPT_USERAGENT, "rekindle");
    set(CURLOPT_ERRORBUFFER, why_);
    // The curl command reads this variable, its library does not.
    if (const char* authorities = std::getenv("SSL_CERT_FILE")) set(CURLOPT_CAINFO, authorities);
  }

  template <typename Value>
  void set(CURLoption option, Value value) {
    if (handle_ != nullptr) curl_.easy_setopt(handle_.get(), option, value);
  }

  void add_header(const char* header) {
    headers_.reset(curl_.slist_append(headers_.release(), header));
    set(CURLOPT_HTTPHEADER, headers_.get());
  }

  // Of the last redirection.
  Result<long> perform(const std::string& url) {
    const BrokenPipeIgnored guard;
    if (handle_ == nullptr) return io_error("cannot ask " + url + ": libcurl has no memory");
    if (const CURLcode code = curl_.easy_perform(handle_.get()); code != CURLE_OK) {
      const std::string why = why_[0] != '\0' ? why_ : "error " + std::to_string(code) + " of libcurl";
      return io_error("cannot ask " + url + ": " + why);
    }
    long status = 0;
    curl_.easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

 private:
  const Curl& curl_;
  std::unique_ptr<CURL, decltype(&::curl_easy_cleanup)> handle_;
  std::unique_ptr<curl_slist, decltype(&::curl_slist_free_all)> headers_;
  char why_[CURL_ERROR_SIZE] = "";
};

Result<const Curl*> loaded(const std::string& url) {
  static const Curl* const curl = load_curl();
  if (curl == nullptr) {
    return io_error("cannot ask " + url + ": there is no libcurl.so.4; install libcurl (Debian: libcurl4)");
  }
  return curl;
}

}  // namespace

Result<HttpAnswer> http_get(const std::string& url, std::uint64_t most_bytes) {
  REKINDLE_ASSIGN_OR_RETURN(const Curl* const curl, loaded(url));
  Download download{.bytes = {}, .most = most_bytes};
  Request request(*curl, url);
  request.set(CURLOPT_WRITEFUNCTION, &take_received);
  request.set(CURLOPT_WRITEDATA, &download);
  const auto status = request.perform(url);
  if (download.too_long) return corruption(url + " has more than " + std::to_string(most_bytes) + " bytes");
  if (!status.ok()) return status.error();
  return HttpAnswer{*status, std::move(download.bytes)};
}

Result<HttpAnswer> http_put(const std::string& url, std::string_view body) {
  REKINDLE_ASSIGN_OR_RETURN(const Curl* const curl, loaded(url));
  Download ignored{.bytes = {}, .most = 1 << 20};
  Request request(*curl, url);
  request.set(CURLOPT_UPLOAD, 1L);
  request.set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body.size()));
  request.set(CURLOPT_READFUNCTION, &give_rest);
  request.set(CURLOPT_READDATA, &body);
  request.add_header("Expect:");  // else libcurl waits a second for servers that do not answer "100 Continue"
  request.add_header("Content-Type: application/octet-stream");
  request.set(CURLOPT_WRITEFUNCTION, &take_received);
  request.set(CURLOPT_WRITEDATA, &ignored);
  REKINDLE_ASSIGN_OR_RETURN(const long status, request.perform(url));
  return HttpAnswer{status, {}};
}

}  // namespace rekindle
