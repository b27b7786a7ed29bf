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

  void problem(Kind kind, const kube::ApiError& error);
  void works(Kind kind, size_t objects);

  // The problem of this moment in one line, with its remedy; empty: none.
  std::string present() const;

 private:
  struct State {
    std::string text;
    SteadyTime said{};
  };

  const std::string server_;
  const std::shared_ptr<const Clock> clock_;
  const Logger log_;
  mutable std::mutex mutex_;
  std::map<Kind, State> states_;  // of the kinds that do not work now
};

}  // namespace oarlock::control
