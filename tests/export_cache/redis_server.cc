#include "tests/export_cache/redis_server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace rekindle::testing {
namespace {

// A socket that listens on 127.0.0.1; port 0: on a free one, which is put there.
int listen_at(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, generic, size) != 0 || listen(fd, 8) != 0 || getsockname(fd, generic, &size) != 0)
    std::abort();
  port = ntohs(address.sin_port);
  return fd;
}

bool answers(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return connected;
}

// Reads commands of one client: "*<count>\r\n" and, for each word, "$<length>\r\n<bytes>\r\n".
class Client {
 public:
  explicit Client(int fd) : in_(fdopen(fd, "r")), out_(fdopen(dup(fd), "w")) {}
  ~Client() {
    fclose(in_);
    fclose(out_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Empty at the end.
  std::vector<std::string> read() {
    long count = 0;
    std::vector<std::string> words;
    if (std::fscanf(in_, "*%ld\r\n", &count) != 1) return {};
    for (long i = 0; i < count; ++i) {
      std::size_t length = 0;
      if (std::fscanf(in_, "$%zu", &length) != 1 || std::getc(in_) != '\r' || std::getc(in_) != '\n')
        return {};
      std::string word(length, '\0');
      if (std::fread(word.data(), 1, length, in_) != length) return {};
      if (std::getc(in_) != '\r' || std::getc(in_) != '\n') return {};
      words.push_back(std::move(word));
    }
    return words;
  }
  void write(const std::string& bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), out_);
    std::fflush(out_);
  }

 private:
  FILE* in_;
  FILE* out_;
};

}  // namespace

struct RedisServer::Parts {
  std::string password;
  int port = 0;
  pid_t process = -1;  // of redis-server
  int socket = -1;     // ours
  std::mutex mutex;
  std::map<std::string, std::string> kept;  // by database and key
  std::thread acceptor;
  std::vector<std::thread> clients;  // the acceptor's, until it is joined

  void serve(int fd);
  std::string answer(const std::vector<std::string>& words, bool& known, std::string& database);
};

std::string RedisServer::Parts::answer(const std::vector<std::string>& words, bool& known,
                                       std::string& database) {
  if (words[0] == "AUTH") {
    known = words.at(1) == password;
    return known ? "+OK\r\n" : "-WRONGPASS invalid username-password pair\r\n";
  }
  if (!known) return "-NOAUTH Authentication required.\r\n";
  const std::lock_guard lock(mutex);
  if (words[0] == "SELECT") {
    if (std::stoi(words.at(1)) > 15) return "-ERR DB index is out of range\r\n";
    database = words[1];
    return "+OK\r\n";
  }
  if (words[0] == "SET") {
    kept[database + "/" + words.at(1)] = words.at(2);
    return "+OK\r\n";
  }
  if (words[0] != "GET") return "-ERR unknown command\r\n";
  const auto found = kept.find(database + "/" + words.at(1));
  if (found == kept.end()) return "$-1\r\n";
  return "$" + std::to_string(found->second.size()) + "\r\n" + found->second + "\r\n";
}

void RedisServer::Parts::serve(int fd) {
  Client client(fd);
  bool known = password.empty();
  std::string database = "0";
  for (auto words = client.read(); !words.empty(); words = client.read())
    client.write(answer(words, known, database));
}

bool RedisServer::is_installed() { return std::system("command -v redis-server >/dev/null 2>&1") == 0; }

RedisServer::RedisServer(Kind kind, std::string password) : parts_(std::make_unique<Parts>()) {
  Parts& parts = *parts_;
  parts.password = std::move(password);
  parts.socket = listen_at(parts.port);
  if (kind == Kind::kOurs) {
    parts.acceptor = std::thread([&parts] {
      for (int fd = accept(parts.socket, nullptr, nullptr); fd >= 0;
           fd = accept(parts.socket, nullptr, nullptr))
        parts.clients.emplace_back([&parts, fd] { parts.serve(fd); });
    });
    return;
  }
  close(parts.socket);  // the port is free again, and nobody else's yet
  std::string port = std::to_string(parts.port);
  std::vector<const char*> words{"redis-server", "--port", port.c_str(), "--bind",   "127.0.0.1",
                                 "--save",       "",       "--logfile",  "/dev/null"};
  if (!parts.password.empty()) words.insert(words.end(), {"--requirepass", parts.password.c_str()});
  words.push_back(nullptr);
  if (posix_spawnp(&parts.process, words[0], nullptr, nullptr, const_cast<char* const*>(words.data()),
                   environ) != 0)
    std::abort();
  while (!answers(parts.port)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

RedisServer::~RedisServer() {
  if (parts_->process > 0) {
    kill(parts_->process, SIGTERM);
    waitpid(parts_->process, nullptr, 0);
    return;
  }
  shutdown(parts_->socket, SHUT_RDWR);  // ends accept
  parts_->acceptor.join();
  for (std::thread& client : parts_->clients) client.join();
  close(parts_->socket);
}

std::string RedisServer::place() const { return "127.0.0.1:" + std::to_string(parts_->port); }

}  // namespace rekindle::testing
