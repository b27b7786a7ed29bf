// Log lines about objects that cannot be read. A tenant or a faulty API server can produce any number of them, so the
// number and the length of the lines are limited.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "kube/client/request.h"

namespace oarlock::control {

// Logs each object and error once, and at most kLinesPerMinute lines per minute. The others of a minute are counted, in
// one line at its end. Thread-safe.
class UnreadableLog {
 public:
  static constexpr int kLinesPerMinute = 10;

  // Passes the lines to `write`; the default writes them to `log`.
  struct Line {
    std::string message;
    std::string resource;  // empty: the number of others
    std::string namespace_name;
    std::string name;
    std::string error;
  };
  using Write = std::function<void(const Line&)>;

  UnreadableLog(std::shared_ptr<const Clock> clock, const Logger& log);
  UnreadableLog(std::shared_ptr<const Clock> clock, Write write);

  void record(const std::string& resource, const kube::ObjectKey& key, const Error& error);

  // Writes the number of the others if the minute is over. To be called from time to time.
  void flush();

 private:
  // Begins a new minute if the last one is over. Returns the number of lines that were left out in it. REQUIRES: mutex_
  // is held.
  int64_t next_minute();
  void write_others(int64_t others) const;

  const std::shared_ptr<const Clock> clock_;
  const Write write_;
  std::mutex mutex_;                   // not held while a line is written, which may block
  std::unordered_set<size_t> logged_;  // hashes of object and error
  SteadyTime minute_{};
  int lines_ = 0;  // of this minute
  int64_t others_ = 0;
};

}  // namespace oarlock::control
