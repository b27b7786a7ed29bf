// Follows one selection of one resource after the rules of client-go's reflector (tools/cache/reflector.go): a watch
// that begins with everything there is (WatchList), or where the server does not know that a list and a watch from
// there, again and again. It knows nothing of what the objects are: a target takes them.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "operator/kube/client.h"
#include "operator/kube/field_filter.h"
#include "operator/kube/request.h"
#include "operator/kube/timing.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

enum class ChangeType { kAdded, kModified, kDeleted };

// Called by the reflector's thread only. The objects are what the filter has kept of them.
class ReflectorTarget {
 public:
  virtual ~ReflectorTarget() = default;

  // A complete state: begin, every object, then either commit, which makes it the state in one step, or abandon.
  virtual void begin_replace() = 0;
  virtual void replace_object(nlohmann::json object) = 0;
  virtual void replace_deleted(nlohmann::json object) = 0;  // given before, and gone before the commit
  virtual void commit_replace(const std::string& resource_version) = 0;
  virtual void abandon_replace() = 0;

  virtual void change(ChangeType type, nlohmann::json object, const std::string& resource_version) = 0;
  // Nothing of the selection has changed up to here.
  virtual void bookmark(const std::string& resource_version) = 0;
};

// What somebody who looks after the program wants to know.
class ReflectorObserver {
 public:
  virtual ~ReflectorObserver() = default;
  virtual void on_problem(const ApiError& error) = 0;  // it will be tried again
  virtual void on_synced() = 0;                        // after each commit_replace
};

struct ReflectorOptions {
  Resource resource;
  Selection selection;
  FieldFilter fields;      // of one object; metadata.resourceVersion is added
  bool watch_list = true;  // until the server turns out not to know it
  int page_size = 500;
  std::chrono::seconds watch_timeout{300};  // shortest; up to twice as long, by chance
  // Bookmarks come once a minute, so a watch that is silent for longer is dead.
  Milliseconds idle{90000};
  Milliseconds list_limit{120000};  // longest time for one page
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
  const FieldFilter object_filter_;
  const FieldFilter event_filter_;
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
