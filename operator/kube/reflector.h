// Follows one selection of one resource after the rules of client-go's reflector (tools/cache/reflector.go): a watch
// that begins with everything there is (WatchList), or where the server does not know that a list and a watch from
// there, again and again. It knows nothing of what the objects are: a target takes them.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "operator/kube/client.h"
#include "operator/kube/field_filter.h"
#include "operator/kube/request.h"
#include "operator/kube/timing.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

enum class ChangeType { kAdded, kModified, kDeleted };

// An object as the reflector's filter has kept it. With an error, the object could not be read, and `json` is what
// ReflectorOptions::salvage has kept.
struct KeptObject {
  nlohmann::json json;
  std::optional<Error> error{};
};

// Called by the reflector's thread only.
class ReflectorTarget {
 public:
  virtual ~ReflectorTarget() = default;

  // A complete state: begin, every object, then either commit, which makes it the state in one step, or abandon.
  virtual void begin_replace() = 0;
  virtual void replace_object(KeptObject object) = 0;
  virtual void replace_deleted(KeptObject object) = 0;  // given before, and gone before the commit
  virtual void commit_replace(const std::string& resource_version) = 0;
  virtual void abandon_replace() = 0;

  virtual void change(ChangeType type, KeptObject object, const std::string& resource_version) = 0;
  // Nothing of the selection has changed up to here.
  virtual void bookmark(const std::string& resource_version) = 0;
};

// Reports what an administrator of the program needs to know.
class ReflectorObserver {
 public:
  virtual ~ReflectorObserver() = default;
  virtual void on_problem(const ApiError& error) = 0;  // it will be tried again
  virtual void on_synced() = 0;                        // after each commit_replace
  virtual void on_watching() = 0;                      // a watch that follows a list has brought its first event
  // An item of a list or a line of a watch was skipped, because not even the salvaged fields can be read.
  virtual void on_skipped(const Error& error) = 0;
};

struct ReflectorOptions {
  Resource resource;
  Selection selection;
  FieldFilter fields;  // of one object; metadata.resourceVersion is added
  // Of an object that `fields` cannot read.
  FieldFilter salvage{"metadata.namespace", "metadata.name", "metadata.resourceVersion"};
  bool watch_list = true;  // until the server turns out not to know it
  int page_size = 500;
  std::chrono::seconds watch_timeout{300};  // shortest; up to twice as long, by chance
  // Bookmarks come once a minute, so a watch that is silent for longer is dead.
  Milliseconds idle{90000};
  Milliseconds list_limit{120000};  // longest time for one page
};

// A filter, and the one for texts that it cannot read.
struct ObjectFilters {
  FieldFilter fields;
  FieldFilter salvage;
};

class WatchSink;

class Reflector {
 public:
  Reflector(ReflectorOptions options, std::shared_ptr<Transport> transport, ReflectorTarget& target,
            ReflectorObserver& observer, std::shared_ptr<const Clock> clock, std::shared_ptr<Sleeper> sleeper,
            Random random);

  void run(const std::stop_token& stop);  // until stopped

 private:
  enum class Next { kWatch, kWatchLater, kListLater };

  // Each returns what to do next; kListLater and kWatchLater after a pause.
  Next fill(const std::stop_token& stop);        // with all there is, by watch_list or list
  Next watch_list(const std::stop_token& stop);  // and goes on as a watch
  Next without_watch_list(const std::stop_token& stop);
  Next list(const std::stop_token& stop);
  Next watch(const std::stop_token& stop);
  Next after_watch(const WatchSink& sink, const TransportResult<Response>& response, std::chrono::nanoseconds took);
  std::chrono::seconds watch_timeout() const;
  // One page; its continue token, empty after the last.
  ApiResult<std::string> list_page(const ListOptions& options, std::string& resource_version,
                                   const std::stop_token& stop);
  Next failed(const ApiError& error, Next next);

  const ReflectorOptions options_;
  const ObjectFilters object_filters_;
  const ObjectFilters event_filters_;
  const FieldFilter envelope_filter_;
  const std::shared_ptr<Transport> transport_;
  ReflectorTarget& target_;
  ReflectorObserver& observer_;
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<Sleeper> sleeper_;
  const Random random_;
  Backoff backoff_;
  std::string last_version_ = "0";  // where the next watch, or list, goes on; "": from the newest
  bool use_watch_list_;
  bool pages_expired_ = false;  // the last list's pages outlived its snapshot: take the next in one piece
  std::optional<std::chrono::seconds> retry_after_;
};

}  // namespace oarlock::kube
