// Decoding of streamed lists and watches into calls of a ReflectorTarget. Used by the reflector.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operator/kube/client/client.h"
#include "operator/kube/client/field_filter.h"
#include "operator/kube/client/reflector.h"
#include "operator/kube/client/splitter.h"
#include "operator/kube/http/transport.h"

namespace oarlock::kube {

// Returns the filters for watch events, {type, object}, whose objects the given filters select.
ObjectFilters event_filters(const ObjectFilters& objects);

// Makes an error of kind kOther for a response that cannot be decoded.
ApiError decode_error(std::string message);
// Returns metadata.resourceVersion of an object; empty if there is none.
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
class ListSink final : public ByteSink {
 public:
  ListSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer);

  bool write(std::string_view bytes) override;
  const std::string& problem() const { return problem_; }
  const ItemSplitter& splitter() const { return splitter_; }

 private:
  ReflectorTarget& target_;
  ItemSplitter splitter_;
  ObjectReader reader_;
  std::string problem_;
};

// Passes the events of a watch to the target. If `initial` is true, the events before the bookmark that ends them
// (KEP-3157, WatchList) are a complete state, which that bookmark commits. The caller has then called begin_replace(),
// and must call abandon_replace() if committed() is false at the end.
class WatchSink final : public ByteSink {
 public:
  // `filters` is the result of event_filters(). `last_version` is updated by each event; it may be empty.
  WatchSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer,
            std::string& last_version, bool initial);

  bool write(std::string_view bytes) override;

  const std::optional<ApiError>& problem() const { return problem_; }
  int events() const { return events_; }  // lines, including skipped ones
  bool committed() const { return !initial_; }
  // A bookmark arrived that does not end the initial events, so the server does not support WatchList.
  bool ignored_initial() const { return ignored_initial_; }

 private:
  bool event(std::string_view line);
  bool initial_event(const std::string& type, FilteredObject object, const std::string& version);
  bool live_event(const std::string& type, FilteredObject object, const std::string& version);
  void skip_unknown_type(const std::string& type);
  bool fail(ApiError error);

  ReflectorTarget& target_;
  ReflectorObserver& observer_;
  std::string& last_version_;
  LineSplitter splitter_;
  ObjectReader reader_;
  std::optional<ApiError> problem_;
  int events_ = 0;
  bool initial_;
  bool ignored_initial_ = false;
};

}  // namespace oarlock::kube
