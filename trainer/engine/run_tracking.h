// Reports the run to the sinks of the section "tracking" (trainer/tracking). Exists only on rank 0, and only if a sink
// is configured.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/config/metric_names.h"
#include "trainer/config/tracking.h"
#include "trainer/engine/task.h"
#include "trainer/nn/module_tensors.h"
#include "trainer/process/termination.h"
#include "trainer/tracking/tracker.h"

namespace oarlock {

struct RunTrackingOptions {
  TrackingConfig config;
  std::string checkpoint_dir;  // may be empty
  RunStarted run;              // without restart_step
  // Whether another process may replace this one. It does not report again the steps that this process has reported.
  bool is_replaceable = false;
};

// No method waits for a disk or a server, except persist() and finish().
class RunTracking {
 public:
  // Returns null if the configuration has no sink. Fails with kConfig as the factories of the sinks do. The clock must
  // outlive the object.
  static Result<std::unique_ptr<RunTracking>> open(RunTrackingOptions options, const Logger& logger,
                                                   const Clock& clock);

  // Must be the first event: training begins after this step.
  void start(int64_t restart_step);

  // Values of metrics after this step.
  void add_scalars(int64_t step, Scalars scalars);

  // The result of the evaluation, or of another pass, with names that begin with the name of the pass.
  void add_metrics(int64_t step, const std::string& pass, const Metrics& metrics);
  void add_media(int64_t step, const std::string& pass, const PassMedia& media);

  bool are_histograms_due(int64_t step) const;
  // Histograms of tensors on any device, for which the call waits. A failure is logged once.
  void add_histograms(int64_t step, const std::string& prefix, const std::vector<NamedTensor>& tensors);

  // Called before a checkpoint is committed, by any thread: waits a limited time until all points so far are stored
  // outside of the process, because a run that resumes from the checkpoint does not report them again.
  void persist();

  // Must be the last call. The end of a run without a start() is not reported. Waits for deliveries, for a shorter time
  // if `is_hurried` is set, or as soon as the flag is raised.
  void finish(int64_t step, RunFinished finished, bool is_hurried, const StopFlag& stop);

 private:
  RunTracking(RunTrackingOptions options, MetricNames names, std::vector<std::unique_ptr<Sink>> sinks,
              const std::filesystem::path& directory, const Logger& logger, const Clock& clock);

  template <typename Content>
  void add(int64_t step, Content content);

  void rename(Scalars& scalars) const;
  void rename(RunFinished& finished) const;
  template <typename Content>
  void rename(Content& content) const {  // with one name
    content.name = names_.of(content.name);
  }

  RunTrackingOptions options_;
  const MetricNames names_;
  Logger logger_;
  const Clock& clock_;
  bool is_started_ = false;
  bool has_lost_histograms_ = false;   // which was logged
  std::atomic<bool> is_late_ = false;  // the last persist() has timed out
  Tracker tracker_;
};

// Returns the histogram of a tensor's finite elements, in buckets of equal width.
Histogram histogram_of(const std::string& name, const at::Tensor& values);

// Returns the directory of profiles in the format of TensorBoard's plugin.
std::filesystem::path profile_directory(const ProfileConfig& profile, const TrackingConfig& tracking,
                                        const std::string& checkpoint_dir);

}  // namespace oarlock
