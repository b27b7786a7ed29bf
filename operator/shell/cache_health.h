// Health of the cache's informers: the lists and watches that fail, since when, and the remedy.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "common/clock.h"
#include "common/log.h"
#include "kube/client/work_queue.h"
#include "operator/shell/cache.h"

namespace oarlock::control {

// Returns the remedy for an error in a few words; empty if the user can only wait.
std::string remedy_for(ResourceKind kind, const kube::ApiError& error);

// Describes an error by its kind and the status of the response, without any text of the API server.
std::string public_description(const kube::ApiError& error);

// Receives the informers' failures and recoveries, and logs them: a new kind of failure immediately, a persisting one
// once a minute, and the recovery. Thread-safe.
class CacheHealth {
 public:
  // After this many consecutive failures the cache may be out of date. With the informers' backoff that takes at least
  // 12 s.
  static constexpr int kFailuresUntilStale = 5;
  // So it may after this time, with fewer failures that take longer, or during a list that does not end. A failure of
  // a watch can remain for up to four and a half minutes where nothing changes: the time until silent watches are
  // checked (reflector.h).
  static constexpr std::chrono::minutes kTimeUntilStale{5};

  CacheHealth(std::string server, std::shared_ptr<const Clock> clock, const Logger& log)
      : server_(std::move(server)), clock_(std::move(clock)), log_(log) {}

  void record_failure(const WatchScope& scope, const kube::ApiError& error);
  void record_listing(const WatchScope& scope);               // a list begins
  void record_list(const WatchScope& scope, size_t objects);  // a list succeeded
  void record_watch(const WatchScope& scope);                 // a watch delivered its first event

  // Objects of these namespaces were dropped because of CacheOptions::limit.
  void record_incomplete(const WatchScope& scope, const std::set<std::string>& namespaces);
  size_t incomplete_namespaces(ResourceKind kind) const;

  // Consecutive failures for this kind, in the namespace with the most of them.
  int failures(ResourceKind kind) const;

  // The time since the first of these failures, or since the start of a list in progress, whichever is longer, in the
  // namespace where it is longest; 0 if there is neither.
  kube::Seconds out_of_date(ResourceKind kind) const;

  // A failure that persists, in one line with the server's message and a remedy; empty if there is none.
  std::string current_failure() const;

  // The following are for readers without credentials: they contain the kind of a failure and the status of the
  // response, but no text of the API server.

  // As current_failure().
  std::string public_failure() const;
  // Why the cache may be out of date; empty if it is up to date, except for nodes.
  std::string stale_reason() const;
  // Which objects the cache lacks because of CacheOptions::limit, without the names of namespaces; empty if none.
  std::string incomplete_reason() const;

 private:
  struct Failure {
    std::string text;
    std::string public_text;
    SteadyTime logged{};
    int count = 0;  // consecutive
  };

  bool clear(const WatchScope& scope);  // returns whether there was a failure

  const std::string server_;
  const std::shared_ptr<const Clock> clock_;
  const Logger log_;
  // Not held while a line is logged, which may block: the HTTP server's I/O thread calls stale_reason().
  mutable std::mutex mutex_;
  std::map<WatchScope, Failure> failures_;           // of the scopes that do not work now
  std::map<WatchScope, SteadyTime> outdated_since_;  // of these, and of those that are being listed
  std::map<WatchScope, size_t> incomplete_;          // number of incomplete namespaces
};

}  // namespace oarlock::control
