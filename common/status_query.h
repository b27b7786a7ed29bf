// The query of GET /statusz, by which the operator also requests checkpoints. The port is open to the pods of the
// network, so that a request counts only with the uid of the job, and rarely.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.h"

namespace oarlock {

// Path of a file that the launcher of node rank 0 replaces when it receives a request for a checkpoint.
inline constexpr char kEnvCheckpointRequest[] = "OARLOCK_CHECKPOINT_REQUEST";

struct StatusQuery {
  std::string uid;                      // of the job, so that a rank of another one at this address does not respond
  std::optional<int64_t> checkpoint{};  // the number of a request for a checkpoint, which each poll repeats

  bool operator==(const StatusQuery&) const = default;
};

// Returns "uid=U", or "checkpoint=N&uid=U": a server of an earlier version ignores a query with another begin.
std::string to_string(const StatusQuery& query);

// Reads a query, of which unknown parts are ignored.
StatusQuery parse_status_query(std::string_view text);

// The requests that a process has received. Thread-safe.
class CheckpointRequests {
 public:
  static constexpr std::chrono::seconds kMinInterval{60};  // between two requests that count

  // `uid` is that of the job. Without one, no request counts. The clock must outlive the object.
  CheckpointRequests(std::string uid, const Clock& clock) : uid_(std::move(uid)), clock_(clock) {}

  // Returns whether the query has a request that counts: one for this job whose number is not that of the last request,
  // kMinInterval or more after it. Repeated earlier, it counts once the time has passed.
  bool add(const StatusQuery& query);

  // The last request counts again, kMinInterval after it, because the process that received it has been replaced.
  void repeat();

 private:
  const std::string uid_;
  const Clock& clock_;
  std::mutex mutex_;
  std::optional<int64_t> last_;  // that counted
  std::optional<SteadyTime> last_time_;
};

}  // namespace oarlock
