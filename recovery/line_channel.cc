#include "recovery/line_channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace oarlock::recovery {

LineChannel::LineChannel(FileDescriptor socket, size_t max_line) : socket_(std::move(socket)), max_line_(max_line) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

void LineChannel::send(std::string_view line) {
  if (!socket_.open()) return;
  if (queue_.size() - sent_ + line.size() > kMaxQueue) return socket_.close();
  queue_ += line;
  queue_ += '\n';
  flush();
}

void LineChannel::flush() {
  while (socket_.open() && has_queued()) {
    const ssize_t put = ::send(socket_.get(), queue_.data() + sent_, queue_.size() - sent_, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == EAGAIN || errno == EINPROGRESS || errno == ENOTCONN)) return;
    if (put < 0) return socket_.close();
    sent_ += static_cast<size_t>(put);
  }
  queue_.clear();
  sent_ = 0;
}

std::vector<std::string> LineChannel::read() {
  std::vector<std::string> lines;
  std::array<char, 65536> buffer;
  while (socket_.open()) {
    // Not more than one line over the limit, so that bytes after the first line do not count against its limit.
    const size_t wanted = std::min(buffer.size(), max_line_ + 1 - received_.size());
    const ssize_t got = ::recv(socket_.get(), buffer.data(), wanted, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      socket_.close();
      break;
    }
    std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
      received_ += bytes.substr(0, end);
      if (received_.size() > max_line_) {
        socket_.close();
        return {};
      }
      lines.push_back(std::exchange(received_, {}));
    }
    received_ += bytes;
    if (received_.size() > max_line_) socket_.close();
    if (!lines.empty()) break;  // the caller may change the limit after the first line
  }
  return lines;
}

void LineChannel::discard() {
  constexpr int kMaxReads = 16;  // before the caller continues with its other work
  std::array<char, 65536> buffer;
  for (int i = 0; i < kMaxReads && socket_.open(); ++i) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) socket_.close();
  }
}

bool is_equal_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0U : 1U;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i])) ^
                  static_cast<unsigned>(static_cast<unsigned char>(b.empty() ? '\0' : b[i % b.size()]));
  }
  return difference == 0;
}

}  // namespace oarlock::recovery
