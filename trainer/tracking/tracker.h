// Delivers the events of a run to its sinks without delaying the training or changing its result.
//
// One thread takes events from a bounded queue, writes them to the local sinks, and appends them to the journal of each
// remote sink. Each remote sink has a thread that delivers from its journal, and retries after failures.
//
// If two processes have the same directory, the one that started later writes: the earlier one stops when it detects
// the other, and the later one waits for that (see DirectoryClaim). The earlier process may still complete a batch that
// it has begun: in the journals it goes to files that are replaced, and in the files of TensorBoard and W&B it may
// repeat points.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/sink.h"

namespace oarlock {

inline constexpr std::chrono::milliseconds kDefaultClaimInterval{500};
inline constexpr std::chrono::milliseconds kDefaultBatchInterval{250};

struct TrackerOptions {
  std::filesystem::path directory;               // of the journals; empty: in memory
  uint64_t journal_bytes = uint64_t{256} << 20;  // of each; in memory at most kMaxMemoryJournalBytes
  size_t queue_events = 10000;
  uint64_t queue_bytes = uint64_t{64} << 20;  // of texts and images in the queue
  std::string uid{};                          // of the TrainingJob; may be empty
  int attempt = 0;
  std::chrono::milliseconds first_retry{1000};  // the delay doubles with each failure
  std::chrono::milliseconds max_retry{60000};
  // How long points are collected before they are written together: each batch costs a wake-up and system calls.
  std::chrono::milliseconds batch_interval = kDefaultBatchInterval;
  // Interval of the checks whether a later process has claimed the directory. Each write is preceded by a check, too.
  std::chrono::milliseconds claim_interval = kDefaultClaimInterval;
  // How long a new process waits for an earlier one that does not release the directory. Longer than the grace period
  // of a pod, and than the 90 s after which an NFS server revokes the locks of a node that it cannot reach.
  std::chrono::milliseconds claim_patience{120000};
};

// A journal in memory counts toward the memory of the pod.
inline constexpr uint64_t kMaxMemoryJournalBytes = uint64_t{16} << 20;
// A longer text is truncated, and a larger image is dropped.
inline constexpr size_t kMaxTextBytes = size_t{1} << 20;
inline constexpr size_t kMaxImageBytes = size_t{16} << 20;

// All methods are thread-safe.
class Tracker {
 public:
  Tracker(const TrackerOptions& options, std::vector<std::unique_ptr<Sink>> sinks, const Logger& logger);

  // Calls finish() with a time limit of zero, unless it was called.
  ~Tracker();

  // Queues an event. Never waits for a disk or a server. Drops an image that is too large, and every event while the
  // queue is full, which means that the disk does not respond. Logs a warning for the first event that is dropped for
  // each of these reasons.
  void add(Event event);

  // Waits until the events that were added before the call are in the files of the local sinks and in the journals, so
  // that they survive the process and a failure of the node. Returns false if that takes longer than the limit.
  bool persist(std::chrono::milliseconds limit);

  // Waits until all events are delivered, for at most `limit`, and returns whether they are. Events must not be added
  // afterwards.
  bool wait_for_delivery(std::chrono::milliseconds limit);

  // Waits as wait_for_delivery(), and ends the threads. Logs a warning if events are not delivered. Must be the last
  // call.
  void finish(std::chrono::milliseconds limit);

 private:
  struct State;

  std::shared_ptr<State> state_;  // shared with the threads, because one that is blocked is abandoned
  bool finished_ = false;
};

}  // namespace oarlock
