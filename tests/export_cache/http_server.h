// HttpServer: a web server on this machine that keeps what is PUT, for the tests of tiers.
#pragma once

#include <memory>
#include <string>

namespace rekindle::testing {

class HttpServer {
 public:
  enum class Names { kPlain, kBazel };  // kBazel: refuses what Bazel's protocol has no place for

  // Listens on a free port of 127.0.0.1. tls: with a certificate that SSL_CERT_FILE then names.
  explicit HttpServer(Names names, bool tls = false);
  ~HttpServer();

  // "127.0.0.1:<port>", to be followed by a path. Answers are what was put, 404, or below
  // /status/<number>: that status; /moved: a redirection to the same without it; /cut: half of what is
  // promised.
  std::string place() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace rekindle::testing
