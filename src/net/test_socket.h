// For tests: a plain blocking socket that can say what a well-behaved client never would.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/check.h"

namespace anychip::net {

class TestSocket {
 public:
  explicit TestSocket(uint16_t port) : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(file_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  TestSocket(const TestSocket&) = delete;
  ~TestSocket() { close(); }
  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(file_, text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      text.remove_prefix(static_cast<size_t>(count));
    }
  }
  // Reads until `needle` is seen, the peer closes or time is up; what was read, kept across calls.
  std::string read_until(std::string_view needle, int timeout_ms = 5000) {
    size_t searched = 0;
    while (text_.find(needle, searched) == std::string::npos) {
      searched = text_.size() < needle.size() ? 0 : text_.size() - needle.size();
      if (!read_some(timeout_ms)) break;
    }
    return std::exchange(text_, {});
  }
  // What is there already, at most one read.
  std::string read_some_now() {
    read_some(0);
    return std::exchange(text_, {});
  }
  bool is_closed_by_peer(int timeout_ms = 5000) {
    while (read_some(timeout_ms)) {
    }
    return is_closed_;
  }

 private:
  bool read_some(int timeout_ms) {
    pollfd waiting{file_, POLLIN, 0};
    if (::poll(&waiting, 1, timeout_ms) <= 0) return false;
    std::string bytes(1 << 20, '\0');
    const ssize_t count = ::recv(file_, bytes.data(), bytes.size(), 0);
    if (count <= 0) is_closed_ = true;
    if (count > 0) text_.append(bytes, 0, static_cast<size_t>(count));
    return count > 0;
  }

  int file_;
  std::string text_;
  bool is_closed_ = false;
};

}  // namespace anychip::net
