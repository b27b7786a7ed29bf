// What a list's and a watch's bytes become: calls of a ReflectorTarget. Used by the reflector only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operator/kube/client.h"
#include "operator/kube/field_filter.h"
#include "operator/kube/reflector.h"
#include "operator/kube/splitter.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

// The filters for the events of a watch, {type, object}, whose objects these filters read.
ObjectFilters event_filters(const ObjectFilters& objects);

ApiError unreadable(std::string what);
std::string version_of(const nlohmann::json& object);

// Parses texts that come one after the other. One that cannot be read costs nothing but itself.
class TextReader {
 public:
  TextReader(const ObjectFilters& filters, ReflectorObserver& observer) : filters_(filters), observer_(observer) {}

  // What the filters keep of the text. Empty: it was reported to the observer as skipped.
  std::optional<KeptObject> read(std::string_view text);
  void skip(std::string why);

 private:
  const ObjectFilters& filters_;
  ReflectorObserver& observer_;
  FieldFilter::Buffers buffers_;
};

// The items of one page go to replace_object as they come.
class ListSink final : public ByteSink {
 public:
  ListSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer);

  bool write(std::string_view bytes) override;
  const std::string& problem() const { return problem_; }
  const ItemSplitter& splitter() const { return splitter_; }

 private:
  ReflectorTarget& target_;
  ItemSplitter splitter_;
  TextReader reader_;
  std::string problem_;
};

// The events of a watch. With `initial`, those before the bookmark that ends them (KEP-3157, WatchList) make a complete
// state, which that bookmark commits; begin_replace has been called, abandon_replace is the caller's where
// committed() stays false.
class WatchSink final : public ByteSink {
 public:
  // The filters' objects are events: {type, object}. `last_version` follows the events; empty: nothing is known yet.
  WatchSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer,
            std::string& last_version, bool initial);

  bool write(std::string_view bytes) override;

  const std::optional<ApiError>& problem() const { return problem_; }
  int events() const { return events_; }  // lines, those that were skipped included
  bool committed() const { return !initial_; }
  // A bookmark came that does not end the initial events: the server does not know what was asked for.
  bool ignored_initial() const { return ignored_initial_; }

 private:
  bool event(std::string_view line);
  bool initial_event(const std::string& type, KeptObject object, const std::string& version);
  bool live_event(const std::string& type, KeptObject object, const std::string& version);
  void skip_unknown_type(const std::string& type);
  bool fail(ApiError error);

  ReflectorTarget& target_;
  ReflectorObserver& observer_;
  std::string& last_version_;
  LineSplitter splitter_;
  TextReader reader_;
  std::optional<ApiError> problem_;
  int events_ = 0;
  bool initial_;
  bool ignored_initial_ = false;
};

}  // namespace oarlock::kube
