#include "tests/export_cache/http_server.h"

#define CPPHTTPLIB_OPENSSL_SUPPORT
#include <httplib.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <regex>
#include <thread>

#include "tests/support/temp_dir.h"

namespace rekindle::testing {
namespace {

// A certificate for 127.0.0.1 and its key, made once: the files "certificate" and "key".
const TempDir& certified() {
  static const TempDir dir;
  if (std::filesystem::exists(dir / "certificate")) return dir;
  const std::string command =
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext "
      "subjectAltName=IP:127.0.0.1"
      " -keyout " +
      dir / "key" + " -out " + dir / "certificate" + " 2>/dev/null";
  if (std::system(command.c_str()) != 0) std::abort();
  return dir;
}

}  // namespace

struct HttpServer::Parts {
  std::unique_ptr<httplib::Server> server;
  std::mutex mutex;
  std::map<std::string, std::string> kept;  // by path
  std::thread thread;
  int port = 0;
};

HttpServer::HttpServer(Names names, bool tls) : parts_(std::make_unique<Parts>()) {
  Parts& parts = *parts_;
  if (tls) {
    const TempDir& dir = certified();
    setenv("SSL_CERT_FILE", (dir / "certificate").c_str(), 1);
    parts.server = std::make_unique<httplib::SSLServer>((dir / "certificate").c_str(), (dir / "key").c_str());
  } else {
    parts.server = std::make_unique<httplib::Server>();
  }
  setenv("no_proxy", "127.0.0.1", 1);
  const std::string path = names == Names::kBazel ? "(/.*)?/ac/[0-9a-f]{64}" : "(/.*)?/(ac|cas)/[0-9a-f]{32}";
  parts.server->Get("/status/(\\d+)/.*", [](const httplib::Request& request, httplib::Response& response) {
    response.status = std::stoi(request.matches[1]);
  });
  parts.server->Put("/status/(\\d+)/.*", [](const httplib::Request& request, httplib::Response& response) {
    response.status = std::stoi(request.matches[1]);
  });
  parts.server->Get("/moved(/.*)", [](const httplib::Request& request, httplib::Response& response) {
    response.set_redirect(request.matches[1]);
  });
  parts.server->Get("/cut/.*", [](const httplib::Request&, httplib::Response& response) {
    response.set_content_provider(100, "application/octet-stream",
                                  [](std::size_t offset, std::size_t, httplib::DataSink& sink) {
                                    return offset < 50 && sink.write(std::string(50, 'x').data(), 50);
                                  });
  });
  parts.server->Get(path, [&parts](const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(parts.mutex);
    const auto found = parts.kept.find(request.path);
    response.status = found == parts.kept.end() ? 404 : 200;
    if (found != parts.kept.end()) response.set_content(found->second, "application/octet-stream");
  });
  parts.server->Put(path, [&parts](const httplib::Request& request, httplib::Response&) {
    const std::lock_guard lock(parts.mutex);
    parts.kept[request.path] = request.body;
  });
  parts.port = parts.server->bind_to_any_port("127.0.0.1");
  parts.thread = std::thread([&parts] { parts.server->listen_after_bind(); });
  while (!parts.server->is_running())
    std::this_thread::yield();  // one that does not run yet cannot be stopped
}

HttpServer::~HttpServer() {
  parts_->server->stop();
  parts_->thread.join();
}

std::string HttpServer::place() const { return "127.0.0.1:" + std::to_string(parts_->port); }

}  // namespace rekindle::testing
