// Decoding of streamed lists and watches into calls of a ReflectorTarget. A response is split incrementally into the
// lines of a watch or the items of a list; at most one line or item is buffered, which bounds the memory. Used by the
// reflector.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "http/client/transport.h"
#include "kube/client/client.h"
#include "kube/client/field_filter.h"
#include "kube/client/reflector.h"

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

// Returns the filters for watch events, {type, object}, whose objects the given filters select.
ObjectFilters event_filters(const ObjectFilters& objects);

// Makes an error of kind kOther for a response that cannot be decoded.
ApiError decode_error(std::string message);
// Returns metadata.resourceVersion of an object; empty if there is none, or if it is longer than kMaxVersionBytes.
std::string version_of(const nlohmann::json& object);

// Parses objects one after another. An object that cannot be parsed does not affect the others.
class ObjectReader {
 public:
  ObjectReader(const ObjectFilters& filters, ReflectorObserver& observer) : filters_(filters), observer_(observer) {}

  // Parses one object or event. Returns nullopt if it was reported to the observer as skipped.
  std::optional<FilteredObject> read(std::string_view text);
  void report_skipped(std::string reason);

 private:
  const ObjectFilters& filters_;
  ReflectorObserver& observer_;
  FieldFilter::Buffers buffers_;
};

// Passes the items of one page of a list to replace_object() as they arrive.
class ListSink final : public http::ByteSink {
 public:
  ListSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer);

  bool write(std::string_view bytes) override;
  const std::string& problem() const { return problem_; }
  const ItemSplitter& splitter() const { return splitter_; }
  size_t items() const { return items_; }  // including skipped ones

 private:
  ReflectorTarget& target_;
  ItemSplitter splitter_;
  ObjectReader reader_;
  size_t items_ = 0;
  std::string problem_;
};

// Passes the events of a watch to the target. If `initial` is true, the events before the bookmark that ends them
// (KEP-3157, WatchList) are a complete state, which that bookmark commits. The caller has then called begin_replace(),
// and must call abandon_replace() if committed() is false at the end.
class WatchSink final : public http::ByteSink {
 public:
  // `filters` is the result of event_filters(). `last_version` is updated by each event; it may be empty.
  WatchSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer,
            std::string& last_version, bool initial);

  bool write(std::string_view bytes) override;

  const std::optional<ApiError>& problem() const { return problem_; }
  int events() const { return events_; }            // lines, including skipped ones
  int live_events() const { return live_events_; }  // those after the initial ones
  bool committed() const { return !initial_; }
  // A bookmark arrived that does not end the initial events, so the server does not support WatchList.
  bool ignored_initial() const { return ignored_initial_; }

 private:
  bool event(std::string_view line);
  bool initial_event(const std::string& type, FilteredObject object, const std::string& version);
  bool live_event(const std::string& type, FilteredObject object, const std::string& version);
  void skip_unknown_type(const std::string& type);
  bool check_limit();  // of the target's objects
  bool fail(ApiError error);

  ReflectorTarget& target_;
  ReflectorObserver& observer_;
  std::string& last_version_;
  LineSplitter splitter_;
  ObjectReader reader_;
  std::optional<ApiError> problem_;
  int events_ = 0;
  int live_events_ = 0;
  bool initial_;
  bool ignored_initial_ = false;
};

}  // namespace oarlock::kube
