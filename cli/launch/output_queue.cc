#include "cli/launch/output_queue.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace oarlock::launch {
namespace {

size_t largest_write(int fd) {
  struct stat file{};
  const bool regular = ::fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
  return regular ? size_t{1} << 20 : PIPE_BUF;  // a pipe that is writable has room for PIPE_BUF bytes
}

}  // namespace

OutputQueue::OutputQueue(int fd) : fd_(fd), terminal_(::isatty(fd) == 1), largest_write_(largest_write(fd)) {}

void OutputQueue::push(std::string_view text) {
  if (!closed_) text_ += text;
}

void OutputQueue::write_some() {
  const size_t size = std::min(text_.size() - written_, largest_write_);
  const ssize_t put = ::write(fd_, text_.data() + written_, size);
  if (put > 0) written_ += static_cast<size_t>(put);
  if (put < 0 && errno != EINTR && errno != EAGAIN) {
    closed_ = true;
    error_ = errno;
    written_ = text_.size();
  }
  // Moving the rest to the front now and then keeps both the memory and the copying small.
  if (written_ == text_.size() || written_ > kFull) {
    text_.erase(0, written_);
    written_ = 0;
  }
}

bool same_file(int a, int b) {
  struct stat first{};
  struct stat second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

}  // namespace oarlock::launch
