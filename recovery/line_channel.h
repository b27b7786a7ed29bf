// One JSON message per line over a non-blocking stream socket, with limits on both directions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/files.h"

namespace oarlock::recovery {

// Not thread-safe. After an error, the end of the stream or a line over the limit, is_open() is false.
class LineChannel {
 public:
  // Takes a connected, or connecting, stream socket and makes it non-blocking. `max_line` limits received lines.
  LineChannel(FileDescriptor socket, size_t max_line);

  // Queues a line, without its line feed, and sends as much as the socket accepts. A peer that does not read does not
  // block this process: the channel closes when the queue exceeds its limit.
  void send(std::string_view line);
  // Sends more of the queue. Call it when poll(2) reports the socket writable.
  void flush();
  // Returns the complete lines that have arrived.
  std::vector<std::string> read();
  // Discards what has arrived. The peer of a socket that is closed with unread bytes may lose the last lines.
  void discard();

  void set_max_line(size_t bytes) { max_line_ = bytes; }
  int fd() const { return socket_.get(); }
  bool is_open() const { return socket_.open(); }
  bool has_queued() const { return sent_ < queue_.size(); }
  void close() { socket_.close(); }

 private:
  static constexpr size_t kMaxQueue = size_t{1} << 26;

  FileDescriptor socket_;
  size_t max_line_;
  std::string received_;
  std::string queue_;
  size_t sent_ = 0;
};

// Compares two secrets in a time that depends on their lengths only.
bool is_equal_secret(std::string_view a, std::string_view b);

}  // namespace oarlock::recovery
