// Cuts a response that comes in pieces into the texts that are parsed one by one: the lines of a watch, the items of a
// list. Neither holds more than one such text, which is what keeps the memory small.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace oarlock::kube {

// False from it ends the feeding.
using TextHandler = std::function<bool(std::string_view)>;

// A text longer than `limit` bytes is skipped and counted. One that does not end within kSkipFactor times the limit
// means a broken peer, and ends the feeding.
inline constexpr size_t kSkipFactor = 8;

// Lines end with '\n'; empty ones are left out. What follows the last '\n' is no line (yet).
class LineSplitter {
 public:
  // `limit`: bytes of a line.
  explicit LineSplitter(size_t limit) : limit_(limit) {}

  // False: the handler returned false, or a line does not end (then is_endless()).
  bool feed(std::string_view bytes, const TextHandler& on_line);
  bool is_endless() const { return is_endless_; }
  int skipped() const { return skipped_; }

 private:
  const size_t limit_;
  std::string begun_;         // the beginning of a line whose end has not come
  size_t skipped_bytes_ = 0;  // of the line that is being skipped; 0: none is
  int skipped_ = 0;
  bool is_endless_ = false;
};

// The elements of the top-level array "items" of a JSON object, each as text, and the rest ("envelope") with an empty
// array in their place. Only the nesting is looked at; the parser of the item finds what is wrong inside.
class ItemSplitter {
 public:
  explicit ItemSplitter(size_t limit) : limit_(limit) {}

  // As of LineSplitter. An envelope longer than the limit ends the feeding, too.
  bool feed(std::string_view bytes, const TextHandler& on_item);
  bool is_endless() const { return is_endless_; }
  int skipped() const { return skipped_; }

  // Complete once the whole response has been fed.
  bool complete() const { return finished_; }
  const std::string& envelope() const { return envelope_; }

 private:
  void scan_envelope(char c);
  // Adds to the item that has begun. False: it does not end.
  bool add_to_item(std::string_view piece);

  const size_t limit_;
  std::string envelope_;
  std::string item_;          // the beginning of an item whose end has not come
  size_t skipped_bytes_ = 0;  // of the item that is being skipped; 0: none is
  std::string last_key_;      // the last string at depth 1
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_items_ = false;
  bool finished_ = false;
  int skipped_ = 0;
  bool is_endless_ = false;
};

}  // namespace oarlock::kube
