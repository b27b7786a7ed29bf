// A sink with what it could not write yet: events that wait for space on a disk, its journal if it has a server, and
// which failures were logged, so that each kind is logged once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/journal.h"
#include "trainer/tracking/sink.h"

namespace oarlock {

// A sink that writes files. Used by one thread at a time.
class LocalOutput {
 public:
  LocalOutput(std::unique_ptr<Sink> sink, const Logger& logger) : sink_(std::move(sink)), logger_(logger) {}

  std::string name() const { return std::string(sink_->name()); }

  // Sink::fence_earlier_process(). A failure is logged.
  void fence_earlier_process();

  // Writes the events, or keeps them in memory within the limit of the sink.
  void write(std::span<const Event> events);

  // Writes the events that are kept, if there are any.
  void flush();

  // Makes what is written survive a failure of the node. A failure is logged.
  void sync();

  // Whether events are kept that can perhaps be written soon: a directory that this user cannot write to remains so.
  bool has_waiting() const;

 private:
  void report(const Result<void>& written);

  std::unique_ptr<Sink> sink_;
  Logger logger_;
  ExitCode failure_ = ExitCode::kOk;  // of the last call, after which the sink keeps events
  bool has_failed_ = false;           // a failure was logged
  bool has_recovered_ = false;        // a success after it was logged
  bool has_sync_failed_ = false;      // a failure of sync() was logged
};

// A sink with a server, and the journal of what it has not delivered. One thread, that of the queue, opens the journal
// and appends to it, and another one delivers from it.
class RemoteOutput {
 public:
  RemoteOutput(std::unique_ptr<Sink> sink, const Logger& logger) : sink_(std::move(sink)), logger_(logger) {}

  std::string name() const { return std::string(sink_->name()); }

  // Sink::cancel(), from any thread.
  void cancel() { sink_->cancel(); }

  // ---- The thread of the queue

  // Opens the journal in the directory; with an empty directory, or if it cannot be opened there, in memory. Returns
  // false if that fails, too, which is logged.
  bool open_journal(const std::filesystem::path& directory, uint64_t max_bytes, uint64_t max_memory_bytes);

  // Appends the events that the sink takes. `encoded` has the same number of elements. Those that cannot be appended,
  // because the disk is full, wait in memory, as those of local sinks do. Returns whether the journal has new events.
  bool append(std::span<const Event> events, const std::vector<std::string>& encoded);

  // Appends the events that wait. Returns whether the journal has new events.
  bool append_waiting();

  // As LocalOutput::has_waiting(), for the journal.
  bool has_waiting() const;

  // Makes the journal survive a failure of the node. A failure is logged.
  void sync();

  // Logs how many events that wait are lost with the process.
  void report_lost_events() const;

  // ---- The thread that delivers

  // Whether all events of the journal are delivered.
  bool is_delivered() const { return journal_->is_empty(); }

  // Delivers the first events of the journal, and removes them from it if `is_owner` still returns true. Returns false
  // if nothing was delivered.
  Result<bool> deliver_some(const std::function<bool()>& is_owner);

  // Logs the first failure of deliver_some(), and the first success after it.
  void report(const Result<bool>& delivered);

 private:
  // An event that could not be appended to the journal yet.
  struct WaitingEvent {
    std::string encoded;
    bool is_essential = false;  // the first or the last event of an attempt: never dropped
  };

  void drop_waiting(const std::string& reason, size_t max_bytes);

  std::unique_ptr<Sink> sink_;
  Logger logger_;
  std::unique_ptr<Journal> journal_;  // thread-safe

  // Used by the thread of the queue only.
  std::vector<WaitingEvent> waiting_;      // in the order of their appending
  ExitCode disk_failure_ = ExitCode::kOk;  // of the journal, because of which they wait
  bool has_disk_failed_ = false;           // a failure of the journal was logged
  bool has_disk_recovered_ = false;        // its end was logged
  bool has_dropped_ = false;               // the loss of events was logged
  bool has_sync_failed_ = false;           // a failure to sync the journal was logged

  // Used by the thread that delivers only.
  bool has_failed_ = false;      // a failure was logged
  bool has_recovered_ = false;   // a success after it was logged
  bool has_rejected_ = false;    // an event that the sink rejected was logged
  bool has_unreadable_ = false;  // an event of the journal that cannot be read was logged
};

}  // namespace oarlock
