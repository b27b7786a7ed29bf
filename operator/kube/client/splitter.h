// Incremental splitting of a streamed response into the lines of a watch or the items of a list. At most one line or
// item is buffered, which bounds the memory.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace oarlock::kube {

// Receives a line or an item. Returns false to end the stream.
using TextHandler = std::function<bool(std::string_view)>;

// A line or item that is longer than the limit is skipped and counted. One that does not end within kSkipFactor times
// the limit indicates a faulty server and ends the stream.
inline constexpr size_t kSkipFactor = 8;

// Splits into lines, which end with '\n'. Empty lines are ignored, and so is an incomplete line at the end.
class LineSplitter {
 public:
  // `limit`: maximum size of a line in bytes.
  explicit LineSplitter(size_t limit) : limit_(limit) {}

  // Returns false if the handler returned false, or if a line does not end; then is_endless() is true.
  bool feed(std::string_view bytes, const TextHandler& on_line);
  bool is_endless() const { return is_endless_; }
  int skipped() const { return skipped_; }

 private:
  const size_t limit_;
  std::string partial_;       // beginning of an incomplete line
  size_t skipped_bytes_ = 0;  // of the line that is being skipped; 0: none
  int skipped_ = 0;
  bool is_endless_ = false;
};

// Splits a JSON object into the elements of its top-level array "items" and the rest, the envelope, in which that array
// is empty. Only the nesting is examined; errors inside an item are left to its parser.
class ItemSplitter {
 public:
  explicit ItemSplitter(size_t limit) : limit_(limit) {}

  // As LineSplitter::feed(). An envelope that is longer than the limit also ends the stream.
  bool feed(std::string_view bytes, const TextHandler& on_item);
  bool is_endless() const { return is_endless_; }
  int skipped() const { return skipped_; }

  // Whether the end of the object has been read; then envelope() is complete.
  bool complete() const { return finished_; }
  const std::string& envelope() const { return envelope_; }

 private:
  // Advances within a string of the text.
  void scan_string(char c);
  void scan_envelope(char c);
  // Appends to the incomplete item. Returns false if the item does not end.
  bool add_to_item(std::string_view piece);

  const size_t limit_;
  std::string envelope_;
  std::string item_;          // beginning of an incomplete item
  size_t skipped_bytes_ = 0;  // of the item that is being skipped; 0: none
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
