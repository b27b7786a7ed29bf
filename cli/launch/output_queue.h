// Text on its way to a descriptor that may be slow: a pipe to a pager, a container runtime's log.
#pragma once

#include <string>
#include <string_view>

namespace oarlock::launch {

// The descriptor stays in blocking mode, because it is shared with other programs (a terminal); instead, one write()
// is never larger than what a descriptor that poll() calls writable takes without waiting.
class OutputQueue {
 public:
  explicit OutputQueue(int fd);

  void push(std::string_view text);
  std::string& tail() { return text_; }  // to append to in place
  void write_some();                     // call when poll() says that fd() is writable

  int fd() const { return fd_; }
  bool empty() const { return written_ == text_.size(); }
  bool full() const { return text_.size() - written_ > kFull; }  // the producers should wait
  bool closed() const { return closed_; }                        // a write failed; what is pushed is lost
  int error() const { return error_; }                           // errno of the write that failed; 0: none has
  bool is_terminal() const { return terminal_; }

 private:
  static constexpr size_t kFull = size_t{1} << 20;

  int fd_;
  bool terminal_;
  size_t largest_write_;
  std::string text_;
  size_t written_ = 0;
  bool closed_ = false;
  int error_ = 0;
};

// Whether two descriptors lead to the same file, so that only one queue keeps their lines apart.
bool same_file(int a, int b);

}  // namespace oarlock::launch
