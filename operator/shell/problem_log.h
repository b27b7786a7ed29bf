// Turns the informers' failures into lines that a person can act on: one when something goes wrong or goes wrong in a
// new way, one a minute while it lasts, and one when it works again.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/clock.h"
#include "common/log.h"
#include "operator/shell/cache.h"

namespace oarlock::control {

// What to do about it, in a few words; empty where only waiting helps.
std::string remedy_for(Kind kind, const kube::ApiError& error);

// Thread-safe.
class ProblemLog {
 public:
  ProblemLog(std::string server, std::shared_ptr<const Clock> clock, const Logger& log)
      : server_(std::move(server)), clock_(std::move(clock)), log_(log) {}

  void problem(const Followed& followed, const kube::ApiError& error);
  void works(const Followed& followed, size_t objects);  // a list was read
  void watches(const Followed& followed);                // a watch brings events

  // The problem of this moment in one line, with its remedy; empty: none.
  std::string present() const;

  // Lists and watches of this kind that failed in a row, of the namespace where they are most.
  int failures(Kind kind) const;

  // Why the cache can be out of date: something failed kFailuresUntilStale times in a row. Empty: it is not.
  // The informers' backoff makes that at least 12 s.
  static constexpr int kFailuresUntilStale = 5;
  std::string why_stale() const;

 private:
  struct State {
    std::string text;
    SteadyTime said{};
    int failures = 0;  // in a row
  };

  bool forget(const Followed& followed);  // returns whether there was a problem

  const std::string server_;
  const std::shared_ptr<const Clock> clock_;
  const Logger log_;
  // Not held while a line is written, which may block: the HTTP server's I/O thread calls why_stale().
  mutable std::mutex mutex_;
  std::map<Followed, State> states_;  // of what does not work now
};

}  // namespace oarlock::control
