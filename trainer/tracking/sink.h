// The interface of the destinations of a run's events, and the factories of its implementations: TensorBoard, W&B and
// MLflow.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "trainer/config/tracking.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/settings.h"

namespace oarlock {

// The environment of a sink. The clock must outlive the sink.
struct SinkContext {
  // Of files that later attempts read: "tracking" in the checkpoint directory. It may not exist yet. Empty without
  // checkpoints.
  std::filesystem::path directory;
  Logger logger;
  const Clock& clock;
  // Of this process, without restart_step, which is not known yet. A remote sink needs it for events of an earlier
  // attempt whose RunStarted was delivered by that attempt.
  RunStarted run{};
};

// Whether this process may still write the files of the run, and report to its servers. Not empty; thread-safe.
using WriteGuard = std::function<bool()>;

// Of a run that no other process continues.
inline bool may_always_write() { return true; }

// The tracker calls write() from one thread at a time, in the order of the events, and cancel() from any thread. A
// factory, make_<name>_sink(const Config&, const SinkContext&), returns a Result<std::unique_ptr<Sink>>; it must
// neither connect nor wait, because it is called before the training starts. It fails with kConfig only.
//
// Each attempt of a job is a new process with a new sink. The first event of an attempt is RunStarted. A sink must
// deliver each point once, in the whole job: it skips points of a metric at or below the highest step that it has
// delivered for this metric (TensorBoard: after points beyond RunStarted::restart_step were purged). A sink must
// accept that delivered events are repeated, including those of an earlier attempt and its RunStarted, because a
// process may be killed between a delivery and its record in the journal.
class Sink {
 public:
  virtual ~Sink() = default;

  // The key of its section in the configuration: "tensorboard". Also a part of file names.
  virtual std::string_view name() const = 0;

  // Called before all methods below. A sink calls `may_write` before each change of a file and each request, and after
  // it has created or opened a file to which it appends; if it returns false, a later process of the run has its files,
  // and the sink discards its events. A process may be stopped for any time at any instruction.
  virtual void set_guard(WriteGuard /*may_write*/) {}  // NOLINT(performance-unnecessary-value-param): overrides keep it

  // Called at most once, before the first event, if an earlier process of the run may still be about to write: replaces
  // the file to which it appends by a copy, so that its writes have no effect. Fails as write() does.
  virtual Result<void> fence_earlier_process() { return {}; }

  // Whether write() sends requests to a server. Events for a remote sink are first appended to a journal on the disk
  // and then delivered by a thread of the sink, so that a slow server does not delay the training. A local sink must
  // pass its bytes to the kernel before write() returns: the tracker has no other copy of them.
  virtual bool is_remote() const = 0;

  // Whether a remote sink delivers such an event. Others take no space in its journal. Thread-safe.
  virtual bool takes(const Event& /*event*/) const { return true; }

  // Delivers the first events or all of them, and returns their number, from 1 to events.size(). `events` is not empty.
  // May block for as long as a request takes, limited by the sink's own timeout. Failures:
  //  - kDataErr: the first event can never be delivered. The caller drops it and logs a warning.
  //  - any other code: no event was delivered, or an unknown part of them. The caller passes the same events to a
  //  remote
  //    sink again after an increasing delay with jitter, so that the sink should not repeat requests itself. A local
  //    sink keeps the events for its next call (RecordFile). The caller logs the first failure, and the first success
  //    after it.
  virtual Result<size_t> write(std::span<const Event> events) = 0;

  // Writes the events that a local sink has kept after a failure of write(). Called periodically after such a failure,
  // until the time limit at the end of the run. Fails as write() does.
  virtual Result<void> flush() { return {}; }

  // Makes what a local sink has written survive a failure of the node, as a checkpoint does that is committed next. May
  // block for as long as the disk takes. Fails as write() does.
  virtual Result<void> sync() { return {}; }

  // Makes a blocked write() fail soon: the process is about to end. Undelivered events of a remote sink remain in the
  // journal for the next attempt. Called at most once.
  virtual void cancel() {}
};

// ---- TensorBoard -------------------------------------------------------------------------------------------------

// Writes the files that TensorBoard reads: one for each attempt, to which records are appended. Creates
// tensorboard.dir, or "tensorboard" next to the sink's directory, with the first event. Points that the directory
// contains, up to the restart step, are not written again; the points of later steps are discarded by a session start.
std::unique_ptr<Sink> make_tensorboard_sink(const TensorboardConfig& config, const SinkContext& context);

// The directory of the event files.
std::filesystem::path tensorboard_directory(const TensorboardConfig& config,
                                            const std::filesystem::path& tracking_directory);

// ---- Weights & Biases --------------------------------------------------------------------------------------------

// Writes run directories that `wandb sync` uploads. Each attempt writes its own directory,
// DIR/wandb/offline-run-<time>-<id>, with the same run id: an uploaded file must not change any more. The highest step
// of each metric is read from the directories of earlier attempts, and kept in wandb.json in the sink's directory, so
// that directories can be deleted after the upload.
std::unique_ptr<Sink> make_wandb_sink(const WandbSettings& settings, const SinkContext& context);

// ---- MLflow ------------------------------------------------------------------------------------------------------

// Reports a run to a tracking server through its REST API (version 2.0). The job is one run, which has the metrics, so
// that its curves are continuous over restarts; each attempt is a nested run with the parameters, status and reason of
// the attempt. Texts and images are artifacts of the job's run, through the server's proxy; MLflow has no histograms,
// so these are not reported.
//
// A metric, parameter, tag or artifact that MLflow rejects is dropped alone, with a warning. Everything else that fails
// is repeated: also while the run or its experiment is deleted, because they can be restored. If the run does not exist
// any more, because the store was reset, a new one is created; see MlflowErrorKind.
//
// A request whose response was lost may have succeeded. Runs have a tag by which they are found again, and before
// points are repeated, the newest point of each metric is read from the server. Opens no connection. Fails with kConfig
// if there is no address, or if the address or the TLS material is invalid.
Result<std::unique_ptr<Sink>> make_mlflow_sink(const MlflowConfig& config, const TrackingVariables& variables,
                                               const SinkContext& context);

}  // namespace oarlock
