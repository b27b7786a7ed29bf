// Common functions of the fuzzers: an input as text, and as a file for readers that take a path.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "common/files.h"
#include "common/text.h"

namespace oarlock::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Reports a violated property as libFuzzer expects it.
inline void require(bool holds) {
  if (!holds) std::abort();
}

// Requires that a message for users has a text, and no control characters but the ends of its lines.
inline void require_printable_lines(std::string_view message) {
  require(!message.empty());
  while (true) {
    const size_t end = std::min(message.find('\n'), message.size());
    require(is_printable(message.substr(0, end)));
    if (end == message.size()) return;
    message.remove_prefix(end + 1);
  }
}

// Passes `bytes` to a sink (http::ByteSink) in pieces of this size, until it returns false.
template <typename Sink>
void feed(Sink& sink, std::string_view bytes, size_t piece) {
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    if (!sink.write(bytes.substr(begin, piece))) return;
  }
}

// The input as an anonymous file in memory.
class InputFile {
 public:
  explicit InputFile(std::string_view bytes) : file_(::memfd_create("fuzz-input", MFD_CLOEXEC)) {
    require(file_.open() && ::write(file_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }

  std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", file_.get()); }

 private:
  FileDescriptor file_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace oarlock::fuzz
