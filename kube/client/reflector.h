// Lists and watches one selection of one resource, after client-go's reflector (tools/cache/reflector.go). It uses a
// streaming list (WatchList), or a list followed by a watch if the server does not support that, and relists after
// errors that lose events. A ReflectorTarget receives the objects, which the reflector does not interpret.
//
// Silent watches. A server sends a bookmark every minute if the version has changed since the start of the watch.
// kube-apiserver learns a newer version from the changes of the resource and from etcd's progress notifications, which
// by default arrive every ten minutes, and some servers send no bookmarks at all. So a watch without events is usual
// where nothing changes, but also a fault that hides every change: a proxy that buffers, or a load balancer that resets
// connections. A list of the most recent state decides: it follows when the watches have been silent for
// ReflectorOptions::max_silence, that is after two that were idle. If an object has changed, the watches are broken,
// which is reported as a problem, and not as a success of the list.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "http/client/transport.h"
#include "kube/client/backoff.h"
#include "kube/client/client.h"
#include "kube/client/field_filter.h"
#include "kube/client/request.h"

namespace oarlock::kube {

// A resourceVersion is opaque to clients; those of Kubernetes have at most 20 digits.
inline constexpr size_t kMaxVersionBytes = 128;

enum class ChangeType { kAdded, kModified, kDeleted };

// The fields of an object that ReflectorOptions::fields selects. If there is an error, the object could not be parsed,
// and `json` has the fields that ReflectorOptions::salvage selects.
struct FilteredObject {
  nlohmann::json json;
  std::optional<Error> error{};
};

// Receives the objects, on the thread that runs the reflector.
class ReflectorTarget {
 public:
  virtual ~ReflectorTarget() = default;

  // A relist: begin, every object, and then either commit, which replaces the previous state atomically, or abandon.
  virtual void begin_replace() = 0;
  virtual void replace_object(FilteredObject object) = 0;
  // Removes an object that was passed to replace_object() and was deleted before the commit.
  virtual void replace_deleted(FilteredObject object) = 0;
  virtual void commit_replace(const std::string& resource_version) = 0;
  virtual void abandon_replace() = 0;

  // A watch event.
  virtual void change(ChangeType type, FilteredObject object, const std::string& resource_version) = 0;
  // No object of the selection has changed up to this resource version.
  virtual void bookmark(const std::string& resource_version) = 0;

  // Returns a message if the objects exceed a limit. The list or watch then ends with this error.
  virtual std::optional<std::string> exceeded_limit() const { return std::nullopt; }
  // Whether a list follows the present watch when that ends, because the target does not have all objects.
  virtual bool needs_relist() const { return false; }
  // Whether the last commit_replace() has added, modified or removed an object.
  virtual bool has_changed() const { return false; }
};

// Receives events for logs and metrics, on the thread that runs the reflector.
class ReflectorObserver {
 public:
  virtual ~ReflectorObserver() = default;
  // A list or watch failed and will be retried, or watches have missed a change.
  virtual void on_problem(const ApiError& error) = 0;
  // A relist was committed, unless on_problem() or on_watching() reports what it shows about silent watches.
  virtual void on_synced() = 0;
  // A watch has received its first event after the initial ones, or a list shows that silent watches missed no change.
  virtual void on_watching() = 0;
  // An item of a list or a line of a watch was skipped, because not even the salvaged fields could be parsed.
  virtual void on_skipped(const Error& error) = 0;
};

struct ReflectorOptions {
  Resource resource;
  Selection selection;
  // Fields of an object to keep; metadata.resourceVersion is added.
  FieldFilter fields;
  // Fields of an object that cannot be parsed with `fields`.
  FieldFilter salvage{"metadata.namespace", "metadata.name", "metadata.resourceVersion"};
  bool watch_list = true;  // disabled automatically if the server does not support it
  int page_size = 500;
  // These bound the memory that an API server, or a user who creates objects, can make the target use. A Kubernetes
  // cluster is designed for 150,000 pods.
  size_t max_objects = ListProgress::kMaxObjects;
  size_t max_bytes = 64u << 20;             // that the target keeps of all objects together
  std::chrono::seconds watch_timeout{300};  // minimum; the actual value is random, up to twice as long
  // A watch without data for longer than this ends, because its connection may be broken. Bookmarks arrive every minute
  // where objects change.
  http::Milliseconds idle{90000};
  http::Milliseconds max_silence{180000};   // of watches, before a list shows whether they have missed a change
  http::Milliseconds list_timeout{120000};  // of one page
};

// A filter, and the fallback filter for text that the first cannot parse.
struct ObjectFilters {
  FieldFilter fields;
  FieldFilter salvage;
};

class WatchSink;

class Reflector final : private ReflectorObserver {
 public:
  Reflector(ReflectorOptions options, std::shared_ptr<http::Transport> transport, ReflectorTarget& target,
            ReflectorObserver& observer, std::shared_ptr<const Clock> clock, std::shared_ptr<Sleeper> sleeper,
            Random random);

  // Blocks until a stop is requested.
  void run(const std::stop_token& stop);

 private:
  enum class Next { kWatch, kWatchLater, kList, kListLater };

  // Each returns the next step; kListLater and kWatchLater follow after a backoff delay, kList immediately, and kWatch
  // at least a second after the start of the previous watch, because a server may end every watch after one event.
  Next relist(const std::stop_token& stop);      // by watch_list() or list()
  Next watch_list(const std::stop_token& stop);  // continues as a watch
  Next disable_watch_list(const std::stop_token& stop);
  Next list(const std::stop_token& stop);
  Next watch(const std::stop_token& stop);
  Next after_watch(const WatchSink& sink, const http::TransportResult<http::Response>& response,
                   std::chrono::nanoseconds took);
  Next resume_or_check();  // after a watch that may not have lost events
  http::Milliseconds pause_before(Next next);
  SteadyTime begin_watch();  // returns the present time
  std::chrono::seconds watch_timeout() const;
  // Reads one page. Returns its continue token, which is empty for the last page.
  ApiResult<std::string> list_page(const ListOptions& options, std::string& resource_version, ListProgress& progress,
                                   const std::stop_token& stop);
  Next failed(const ApiError& error, Next next);

  // Of a list or a watch in progress.
  void on_problem(const ApiError& error) override { observer_.on_problem(error); }
  void on_synced() override;
  void on_watching() override { observer_.on_watching(); }
  void on_skipped(const Error& error) override { observer_.on_skipped(error); }

  const ReflectorOptions options_;
  const ObjectFilters object_filters_;
  const ObjectFilters event_filters_;
  const FieldFilter envelope_filter_;
  const std::shared_ptr<http::Transport> transport_;
  ReflectorTarget& target_;
  ReflectorObserver& observer_;
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<Sleeper> sleeper_;
  const Random random_;
  Backoff backoff_;
  std::string last_version_ = "0";  // start of the next list or watch; "": the most recent state
  SteadyTime earliest_watch_{};     // of the next watch that needs no backoff delay
  SteadyTime silent_since_{};       // the last relist, or the end of the last watch with an event after it
  bool is_checking_ = false;        // the next list shows whether the silent watches have missed a change
  bool use_watch_list_;
  bool pages_expired_ = false;  // the snapshot expired between two pages: the next list is not paged
  std::optional<std::chrono::seconds> retry_after_;
};

}  // namespace oarlock::kube
