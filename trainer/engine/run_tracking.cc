#include "trainer/engine/run_tracking.h"

#include <ATen/Context.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <type_traits>
#include <utility>

#include "common/status_macros.h"
#include "trainer/process/job_environment.h"
#include "trainer/tracking/encoding.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/sink.h"

namespace oarlock {
namespace {

constexpr int64_t kHistogramBuckets = 64;
constexpr std::chrono::milliseconds kPersistLimit{10000};
constexpr std::chrono::milliseconds kLateLimit{100};
constexpr std::chrono::milliseconds kHurriedLimit{5000};  // within the grace period of a pod
constexpr std::chrono::milliseconds kStopInterval{100};   // until a signal is noticed

std::filesystem::path tracking_directory(const std::string& checkpoint_dir) {
  return checkpoint_dir.empty() ? std::filesystem::path() : std::filesystem::path(checkpoint_dir) / "tracking";
}

Image to_image(const std::string& name, const at::Tensor& pixels) {
  const at::Tensor bytes = pixels.to(at::kCPU, at::kByte).contiguous();
  Image out{.name = name, .width = bytes.size(1), .height = bytes.size(0), .png = ""};
  out.png = encode_png({bytes.const_data_ptr<uint8_t>(), static_cast<size_t>(bytes.numel())}, out.width, out.height,
                       static_cast<int>(bytes.size(2)));
  return out;
}

}  // namespace

Result<std::unique_ptr<RunTracking>> RunTracking::open(RunTrackingOptions options, const Logger& logger,
                                                       const Clock& clock) {
  ASSIGN_OR_RETURN(MetricNames names, MetricNames::parse(options.config.names));
  options.run.monitor = names.of(options.run.monitor);
  options.run.loss = names.of(options.run.loss);
  const std::filesystem::path directory = tracking_directory(options.checkpoint_dir);
  if (!options.checkpoint_dir.empty()) options.run.place = place_of(options.checkpoint_dir);
  const SinkContext context{.directory = directory, .logger = logger, .clock = clock, .run = options.run};
  std::vector<std::unique_ptr<Sink>> sinks;
  if (options.config.tensorboard.enabled) sinks.push_back(make_tensorboard_sink(options.config.tensorboard, context));
  if (options.config.wandb.enabled) {
    ASSIGN_OR_RETURN(const WandbSettings settings, resolve_wandb_settings(options.config.wandb, process_environment()));
    if (is_wandb_enabled(options.config.wandb, settings)) sinks.push_back(make_wandb_sink(settings, context));
  }
  if (options.config.mlflow.enabled) {
    ASSIGN_OR_RETURN(std::unique_ptr<Sink> sink,
                     make_mlflow_sink(options.config.mlflow, process_environment(), context));
    sinks.push_back(std::move(sink));
  }
  if (sinks.empty()) return nullptr;
  return std::unique_ptr<RunTracking>(
      new RunTracking(std::move(options), std::move(names), std::move(sinks), directory, logger, clock));
}

RunTracking::RunTracking(RunTrackingOptions options, MetricNames names, std::vector<std::unique_ptr<Sink>> sinks,
                         const std::filesystem::path& directory, const Logger& logger, const Clock& clock)
    : options_(std::move(options)),
      names_(std::move(names)),
      logger_(logger),
      clock_(clock),
      tracker_({.directory = directory,
                .journal_bytes = static_cast<uint64_t>(options_.config.journal_limit_mib) << 20,
                .uid = options_.run.uid,
                .attempt = options_.run.attempt,
                .batch_interval = options_.is_replaceable ? std::chrono::milliseconds(0) : kDefaultBatchInterval},
               std::move(sinks), logger) {}

void RunTracking::rename(Scalars& scalars) const {
  for (auto& [name, value] : scalars.values) name = names_.of(name);
}

void RunTracking::rename(RunFinished& finished) const {
  std::map<std::string, double> summary;
  for (const auto& [name, value] : finished.summary) summary.emplace(names_.of(name), value);
  finished.summary = std::move(summary);
}

template <typename Content>
void RunTracking::add(int64_t step, Content content) {
  if constexpr (!std::is_same_v<Content, RunStarted>) {
    if (!names_.is_empty()) rename(content);
  }
  tracker_.add({.time = clock_.now(), .step = step, .content = std::move(content)});
}

void RunTracking::start(int64_t restart_step) {
  options_.run.restart_step = restart_step;
  is_started_ = true;
  add(restart_step, options_.run);
}

void RunTracking::add_scalars(int64_t step, Scalars scalars) { add(step, std::move(scalars)); }

void RunTracking::add_metrics(int64_t step, const std::string& pass, const Metrics& metrics) {
  Scalars out;
  for (const auto& [name, value] : metrics) out.values.emplace_back(pass + "/" + name, value);
  if (!out.values.empty()) add(step, std::move(out));
}

void RunTracking::add_media(int64_t step, const std::string& pass, const PassMedia& media) {
  for (const auto& [name, text] : media.texts) add(step, Text{pass + "/" + name, text});
  for (const auto& [name, pixels] : media.images) add(step, to_image(pass + "/" + name, pixels));
}

bool RunTracking::are_histograms_due(int64_t step) const {
  const int64_t every = options_.config.histograms_every_steps;
  return every > 0 && step % every == 0;
}

void RunTracking::add_histograms(int64_t step, const std::string& prefix, const std::vector<NamedTensor>& tensors) {
  try {
    for (const NamedTensor& item : tensors) {
      if (item.tensor.defined() && item.tensor.numel() > 0)
        add(step, histogram_of(prefix + "/" + item.name, item.tensor));
    }
  } catch (const std::exception& error) {  // such as a lack of memory; a failed device fails the next step, too
    if (std::exchange(has_lost_histograms_, true)) return;
    const std::string what = error.what();
    logger_.warn("tracking: histograms could not be computed; training continues",
                 {{"step", step}, {"reason", what.substr(0, what.find('\n'))}});
  }
}

// After a time-out, files that do not respond delay no further checkpoint.
void RunTracking::persist() {
  const bool was_late = is_late_;
  is_late_ = !tracker_.persist(was_late ? kLateLimit : kPersistLimit);
  if (is_late_ && !was_late)
    logger_.warn("tracking: points before a checkpoint are not on the disk yet, and may be missing after a restart");
}

void RunTracking::finish(int64_t step, RunFinished finished, bool is_hurried, const StopFlag& stop) {
  // Without its start, the end would be taken for that of the attempt before.
  if (is_started_) add(step, std::move(finished));
  const std::chrono::milliseconds limit(static_cast<int64_t>(options_.config.finish_timeout_seconds * 1000));
  auto end = std::chrono::steady_clock::now() + (is_hurried ? std::min(limit, kHurriedLimit) : limit);
  while (std::chrono::steady_clock::now() < end && !tracker_.wait_for_delivery(kStopInterval)) {
    if (is_hurried || !stop.is_raised()) continue;
    is_hurried = true;
    end = std::min(end, std::chrono::steady_clock::now() + kHurriedLimit);
  }
  tracker_.finish(std::chrono::milliseconds(0));
}

Histogram histogram_of(const std::string& name, const at::Tensor& values) {
  const at::NoGradGuard no_gradients;
  const at::Tensor all = values.detach().flatten().to(at::kFloat);
  const at::Tensor finite = all.masked_select(at::isfinite(all));
  Histogram out;
  out.name = name;
  if (finite.numel() == 0) return out;
  out.min = finite.min().item<double>();
  out.max = finite.max().item<double>();
  out.count = static_cast<double>(finite.numel());
  out.sum = finite.sum(at::kDouble).item<double>();
  out.sum_squares = finite.to(at::kDouble).square().sum().item<double>();
  if (out.min == out.max) {
    out.limits = {out.max};
    out.counts = {out.count};
    return out;
  }
  // On CUDA devices histc has no deterministic kernel, and throws if only these are allowed.
  const at::Tensor counted = at::globalContext().deterministicAlgorithms() ? finite.cpu() : finite;
  const at::Tensor counts = at::histc(counted, kHistogramBuckets, out.min, out.max).to(at::kCPU, at::kDouble);
  const double width = (out.max - out.min) / static_cast<double>(kHistogramBuckets);
  for (int64_t i = 0; i < kHistogramBuckets; ++i) {
    out.limits.push_back(i + 1 == kHistogramBuckets ? out.max : out.min + width * static_cast<double>(i + 1));
    out.counts.push_back(counts[i].item<double>());
  }
  return out;
}

std::filesystem::path profile_directory(const ProfileConfig& profile, const TrackingConfig& tracking,
                                        const std::string& checkpoint_dir) {
  if (!profile.dir.empty()) return profile.dir;
  return tensorboard_directory(tracking.tensorboard, tracking_directory(checkpoint_dir)) / "plugins" / "profile";
}

}  // namespace oarlock
