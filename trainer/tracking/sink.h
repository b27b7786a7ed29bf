// The destinations of a run's events: TensorBoard, W&B, MLflow.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "trainer/tracking/event.h"

namespace oarlock {

// What every sink may use. The clock must outlive the sink.
struct SinkContext {
  std::filesystem::path folder;  // of files that later attempts find again: "tracking" in the checkpoint folder. It may
                                 // not exist yet. Empty without checkpoints
  Logger logger;
  const Clock& clock;
  RunStarted run{};  // of this process, without restart_step, which is not known yet. A remote sink needs it for events
                     // of an earlier attempt whose RunStarted was delivered by that attempt
};

// The tracker calls write() from one thread at a time, in the order of the events, and cancel() from any thread. A
// factory, make_<name>_sink(const Config&, const SinkContext&), returns a Result<std::unique_ptr<Sink>>; it must
// neither connect nor wait for anything, as it is called before the training starts. It fails with kConfig only.
//
// Each attempt of a job is a new process with a new sink. The first event of an attempt is RunStarted. A sink must
// deliver each point once, in the whole job: it skips points of a metric at or below the highest step that it has
// delivered for this metric (TensorBoard: after points beyond RunStarted::restart_step were purged). A sink must expect
// events to be repeated that it has delivered, also those of an earlier attempt including its RunStarted, because a
// process may be killed between a delivery and its record in the journal.
class Sink {
 public:
  virtual ~Sink() = default;

  // The key of its section in the configuration: "tensorboard". Also a part of file names.
  virtual std::string_view name() const = 0;

  // Whether write() talks to a server. Events for a remote sink are first appended to a journal on the disk and then
  // delivered by a thread of the sink, so that a slow server delays nothing else. A local sink must pass its bytes to
  // the kernel before write() returns: the tracker has no other copy of them.
  virtual bool is_remote() const = 0;

  // Whether a remote sink delivers such an event. Others take no space in its journal. Thread-safe.
  virtual bool takes(const Event& /*event*/) const { return true; }

  // Delivers events, or the first of them: returns the number of delivered events, in 1 .. events.size(). Never called
  // without events. Failures:
  //  - kDataErr: the first event cannot be delivered at all, and repeating it is of no use. It is dropped, with a
  //    warning.
  //  - any other code: nothing was delivered (or may have been delivered in part, and is repeated). A remote sink is
  //    called again with the same events after an increasing delay with jitter; it should not repeat requests itself.
  //    A local sink keeps events for its next call (RecordFile). The first failure and success after it are logged.
  // May block for as long as a request takes, limited by the sink's own timeout.
  virtual Result<size_t> write(std::span<const Event> events) = 0;

  // Writes what a local sink has kept after a failure of write(). Called from time to time after such a failure, and
  // until the limit for the end of the run. Fails as write() does.
  virtual Result<void> flush() { return {}; }

  // Makes what a local sink has written survive a failure of the node, as a checkpoint does that is committed next. May
  // block for as long as the disk takes. Fails as write() does.
  virtual Result<void> sync() { return {}; }

  // Makes a blocked write() fail soon: the process is about to end. Undelivered events of a remote sink remain in the
  // journal for the next attempt. Called at most once.
  virtual void cancel() {}
};

}  // namespace oarlock
