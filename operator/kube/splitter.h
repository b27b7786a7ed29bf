// Cuts a response that comes in pieces into the texts that are parsed one by one: the lines of a watch, the items of a
// list. Neither holds more than one such text, which is what keeps the memory small.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace oarlock::kube {

// False from it ends the feeding.
using TextHandler = std::function<bool(std::string_view)>;

// Lines end with '\n'; empty ones are left out. What follows the last '\n' is no line (yet).
class LineSplitter {
 public:
  // `limit`: bytes of a line. An object is at most 1.5 MiB in etcd, so a longer line means a broken peer.
  explicit LineSplitter(size_t limit) : limit_(limit) {}

  // False: the handler said so, or a line is too long (then too_long()).
  bool feed(std::string_view bytes, const TextHandler& on_line);
  bool too_long() const { return too_long_; }

 private:
  const size_t limit_;
  std::string begun_;  // the beginning of a line whose end has not come
  bool too_long_ = false;
};

// The elements of the top-level array "items" of a JSON object, each as text, and the rest ("envelope") with an empty
// array in their place. Only the nesting is looked at; the parser of the item finds what is wrong inside.
class ItemSplitter {
 public:
  explicit ItemSplitter(size_t limit) : limit_(limit) {}

  bool feed(std::string_view bytes, const TextHandler& on_item);
  bool too_long() const { return too_long_; }

  // Complete once the whole response has been fed.
  bool complete() const { return finished_; }
  const std::string& envelope() const { return envelope_; }

 private:
  void scan_envelope(char c);

  const size_t limit_;
  std::string envelope_;
  std::string item_;      // the beginning of an item whose end has not come
  std::string last_key_;  // the last string at depth 1
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_items_ = false;
  bool finished_ = false;
  bool too_long_ = false;
};

}  // namespace oarlock::kube
