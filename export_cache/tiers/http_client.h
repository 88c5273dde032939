// Reads and writes resources over HTTP and HTTPS, with the libcurl that the machine has.
//
//   auto answer = http_get("http://cache:8080/rekindle/ac/2f…", 1 << 20);   // {200, "bytes"} or {404, ""}
//
// libcurl is loaded at the first call, not linked: it brings two dozen libraries, which no process without
// such a tier should load. It reads the machine's settings: http_proxy and no_proxy, the system's
// certificates or those of SSL_CERT_FILE, ~/.netrc.
// Thread rule: all calls may come from any thread, and from a process that was forked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace rekindle {

struct HttpAnswer {
  long status = 0;   // of the last of up to five redirections
  std::string body;  // of a GET
};

// kIo, naming the URL, when there was no whole answer: no libcurl, no connection in 5 s, less than 1 KiB/s
// for 10 s. kCorruption when the body has more than `most_bytes`.
Result<HttpAnswer> http_get(const std::string& url, std::uint64_t most_bytes);

// kIo as above.
Result<HttpAnswer> http_put(const std::string& url, std::string_view body);

}  // namespace rekindle
