#include "trainer/telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>

namespace oarlock {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

const Labels kAllReduce = {{"op", "all_reduce"}, {"group", "dp"}};

const Histogram::BucketBoundaries kStepBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                  0.5,   1,      2.5,   5,    10,    30,   60,  300};
const Histogram::BucketBoundaries kLongBuckets = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

double to_unix_seconds(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// Advances a counter whose value is computed elsewhere.
void advance_to(Counter& counter, double value) {
  if (const double missing = value - counter.Value(); missing > 0) counter.Increment(missing);
}

}  // namespace

// Metrics that are declared as Family have no series until their first value, so that dashboards show no loss of 0
// before there is a loss.
struct TrainerMetrics::Series {
  Series(prometheus::Registry& target, int rank) : registry(target), labels{{"rank", std::to_string(rank)}} {}

  Family<Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Family<Histogram>& histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }
  Counter& counter(const char* name, const char* help, const Labels& own = {}) { return counters(name, help).Add(own); }

  prometheus::Registry& registry;
  const Labels labels;

  // clang-format off
  // ---- run ----
  Family<Gauge>& build_info = gauges("trainer_build_info", "Build information. The value is always 1.");
  Family<Gauge>& run_info = gauges("trainer_run_info", "Run information. The value is always 1.");
  Gauge& world_size = gauge("trainer_world_size", "Number of ranks in the job.");

  // ---- progress ----
  Counter& steps = counter("trainer_steps_total", "Number of optimizer steps done by this process.");
  Gauge& current_step = gauge("trainer_current_step", "Number of optimizer steps done in all attempts.");
  Gauge& target_steps = gauge("trainer_target_steps", "Number of optimizer steps of the whole run, 0 if not yet known.");
  Gauge& last_step_timestamp = gauge("trainer_last_step_timestamp_seconds", "Unix time of the end of the last step in seconds, 0 before the first step.");
  Histogram& step_duration = histograms("trainer_step_duration_seconds", "Duration of a step in seconds, including the wait for data.").Add({}, kStepBuckets);
  Family<Counter>& phases = counters("trainer_phase_seconds_total", "Time spent per phase in seconds. The phases are exclusive and add up to the time from the start of the process to the end of the run.");
  Counter& recomputed_steps = counter("trainer_recomputed_steps_total", "Number of steps lost after the last checkpoint of an earlier attempt.");

  // ---- optimization ----
  Gauge& learning_rate = gauge("trainer_learning_rate", "Learning rate of the last step.");
  Family<Gauge>& loss = gauges("trainer_loss", "Mean training loss over the ranks at the last logged step.");
  Family<Gauge>& validation_loss = gauges("trainer_validation_loss", "Loss of the last evaluation.");
  Family<Gauge>& gradient_norm = gauges("trainer_gradient_norm", "Norm of all gradients before clipping at the last logged step.");
  Family<Counter>& nonfinite_steps = counters("trainer_nonfinite_steps_total", "Number of steps with a non-finite loss on a rank, and of steps skipped because of a non-finite gradient.");
  Counter& nonfinite_loss = nonfinite_steps.Add({{"kind", "loss"}});
  Counter& nonfinite_gradient = nonfinite_steps.Add({{"kind", "gradient"}});
  Family<Counter>& parameter_checks = counters("trainer_parameter_checks_total", "Number of comparisons of the parameters of all ranks.");
  Counter& parameters_equal = parameter_checks.Add({{"result", "equal"}});
  Counter& parameters_diverged = parameter_checks.Add({{"result", "diverged"}});

  // ---- data ----
  Counter& samples = counter("trainer_samples_total", "Number of samples that this rank has trained on.");
  Family<Counter>& tokens = counters("trainer_tokens_total", "Number of tokens that this rank has trained on.");
  Counter& data_bytes = counter("trainer_data_read_bytes_total", "Size in bytes of the batches that this rank has trained on.");
  Counter& data_errors = counter("trainer_data_errors_total", "Number of batches that could not be loaded.");
  Gauge& data_queue = gauge("trainer_data_queue_batches", "Number of prefetched batches after the last step.");
  Gauge& data_queue_capacity = gauge("trainer_data_queue_capacity_batches", "Maximum number of prefetched batches, 0 without prefetching.");

  // ---- device ----
  Family<Counter>& flops = counters("trainer_model_flops_total", "Number of floating-point operations of the model, derived from matrix products, convolutions and attention of the first forward pass.");
  Family<Gauge>& peak_flops = gauges("trainer_device_peak_flops", "Peak floating-point operations per second of the device in the run's precision, from its data sheet.");
  Family<Gauge>& device_allocated = gauges("trainer_device_memory_allocated_bytes", "Device memory allocated for tensors in bytes.");
  Family<Gauge>& device_reserved = gauges("trainer_device_memory_reserved_bytes", "Device memory reserved by the process in bytes.");
  Family<Gauge>& device_peak = gauges("trainer_device_memory_peak_bytes", "Peak device memory allocated for tensors in bytes.");
  Family<Gauge>& device_limit = gauges("trainer_device_memory_limit_bytes", "Limit of the device memory of the process in bytes.");
  Family<Counter>& device_retries = counters("trainer_device_alloc_retries_total", "Number of device memory allocations that succeeded only after cached memory was released.");
  Family<Counter>& device_ooms = counters("trainer_device_ooms_total", "Number of device memory allocations that failed.");

  // ---- communication ----
  Histogram& rendezvous_duration = histograms("trainer_rendezvous_duration_seconds", "Duration of the rendezvous of all ranks in seconds.").Add({}, kLongBuckets);
  Histogram& recovery_duration = histograms("trainer_recovery_duration_seconds", "Duration in seconds of a recovery from the loss of a rank without a checkpoint, from the detection of the loss until training continued.").Add({}, kLongBuckets);
  Counter& all_reduce_operations = counter("trainer_collective_operations_total", "Number of gradient buckets averaged over the ranks.", kAllReduce);
  Counter& all_reduce_bytes = counter("trainer_collective_bytes_total", "Size in bytes of this rank's gradients that were averaged in collectives.", kAllReduce);
  Counter& all_reduce_seconds = counter("trainer_collective_seconds_total", "Time blocked on collectives in seconds, excluding overlap with the backward pass.", kAllReduce);
  Counter& communication_errors = counter("trainer_comm_errors_total", "Number of failed collectives.", {{"kind", "peer_lost"}});

  // ---- checkpoints ----
  Family<Gauge>& last_checkpoint_step = gauges("trainer_last_checkpoint_step", "Step of the newest complete checkpoint.");
  Family<Gauge>& last_checkpoint_timestamp = gauges("trainer_last_checkpoint_timestamp_seconds", "Unix time in seconds at which the newest checkpoint was completed.");
  Family<Counter>& checkpoint_operations = counters("trainer_checkpoint_operations_total", "Number of checkpoints saved and restored.");
  Family<Counter>& checkpoint_bytes = counters("trainer_checkpoint_bytes_total", "Size in bytes of the checkpoints written and read.");
  Family<Histogram>& checkpoint_duration = histograms("trainer_checkpoint_duration_seconds", "Duration of saving or restoring a checkpoint in seconds.");
  // clang-format on

  std::array<Counter*, kPhaseNames.size()> by_phase{};  // series of `phases`
};

TrainerMetrics::TrainerMetrics(int rank, int world_size, const BuildInfo& build, const RunInfo& run)
    : registry_(std::make_shared<prometheus::Registry>()), series_(std::make_unique<Series>(*registry_, rank)) {
  series_->build_info
      .Add({{"version", build.version},
            {"revision", build.revision},
            {"libtorch", build.libtorch},
            {"cuda", build.cuda},
            {"nccl", build.nccl}})
      .Set(1);
  series_->run_info
      .Add({{"run_id", run.run_id}, {"model", run.model}, {"strategy", run.strategy}, {"precision", run.precision}})
      .Set(1);
  series_->world_size.Set(world_size);
  for (size_t i = 0; i < kPhaseNames.size(); ++i)
    series_->by_phase[i] = &series_->phases.Add({{"phase", std::string(kPhaseNames[i])}});
}

TrainerMetrics::~TrainerMetrics() = default;

void TrainerMetrics::set_target_steps(int64_t steps) { series_->target_steps.Set(static_cast<double>(steps)); }
void TrainerMetrics::set_step(int64_t step) { series_->current_step.Set(static_cast<double>(step)); }

void TrainerMetrics::record_step(const StepReport& report, SystemTime now) {
  series_->steps.Increment();
  series_->current_step.Set(static_cast<double>(report.step));
  series_->samples.Increment(static_cast<double>(report.local_samples));
  series_->step_duration.Observe(report.seconds);
  series_->learning_rate.Set(report.learning_rate);
  series_->last_step_timestamp.Set(to_unix_seconds(now));
  series_->data_bytes.Increment(static_cast<double>(report.data_bytes));
  series_->data_queue.Set(static_cast<double>(report.batches_ready));
  if (report.tokens > 0) series_->tokens.Add({}).Increment(static_cast<double>(report.tokens));
  if (report.flops > 0) series_->flops.Add({}).Increment(report.flops);
}

void TrainerMetrics::set_data_queue_capacity(int64_t batches) {
  series_->data_queue_capacity.Set(static_cast<double>(batches));
}
void TrainerMetrics::record_data_error() { series_->data_errors.Increment(); }
void TrainerMetrics::set_peak_flops(double flops) { series_->peak_flops.Add({}).Set(flops); }

void TrainerMetrics::set_device_memory(const DeviceMemoryReport& memory) {
  series_->device_allocated.Add({}).Set(static_cast<double>(memory.allocated_bytes));
  series_->device_reserved.Add({}).Set(static_cast<double>(memory.reserved_bytes));
  series_->device_peak.Add({}).Set(static_cast<double>(memory.peak_bytes));
  series_->device_limit.Add({}).Set(static_cast<double>(memory.limit_bytes));
  advance_to(series_->device_retries.Add({}), static_cast<double>(memory.retries));
  advance_to(series_->device_ooms.Add({}), static_cast<double>(memory.out_of_memory));
}

void TrainerMetrics::set_loss(double loss) { series_->loss.Add({}).Set(loss); }
void TrainerMetrics::set_validation_loss(double loss) { series_->validation_loss.Add({}).Set(loss); }

void TrainerMetrics::set_phases(const std::array<double, kPhaseNames.size()>& seconds) {
  for (size_t i = 0; i < seconds.size(); ++i) advance_to(*series_->by_phase[i], seconds[i]);
  advance_to(series_->all_reduce_seconds, seconds[static_cast<size_t>(Phase::kComm)]);
}

void TrainerMetrics::record_rendezvous(double seconds) { series_->rendezvous_duration.Observe(seconds); }

void TrainerMetrics::set_world_size(int world_size) { series_->world_size.Set(world_size); }

void TrainerMetrics::record_recovery(double seconds) { series_->recovery_duration.Observe(seconds); }

void TrainerMetrics::record_gradient_reduction(int64_t buckets, int64_t bytes) {
  series_->all_reduce_operations.Increment(static_cast<double>(buckets));
  series_->all_reduce_bytes.Increment(static_cast<double>(bytes));
}

void TrainerMetrics::record_checkpoint(bool save, bool success, int64_t bytes, double seconds) {
  const std::string operation = save ? "save" : "restore";
  series_->checkpoint_operations.Add({{"operation", operation}, {"result", success ? "success" : "failure"}})
      .Increment();
  if (!success) return;
  series_->checkpoint_bytes.Add({{"operation", operation}}).Increment(static_cast<double>(bytes));
  series_->checkpoint_duration.Add({{"operation", operation}, {"mode", save ? "async" : "sync"}}, kLongBuckets)
      .Observe(seconds);
}

void TrainerMetrics::record_recomputed_steps(int64_t steps) {
  series_->recomputed_steps.Increment(static_cast<double>(steps));
}

void TrainerMetrics::set_last_checkpoint(int64_t step, SystemTime time) {
  series_->last_checkpoint_step.Add({}).Set(static_cast<double>(step));
  series_->last_checkpoint_timestamp.Add({}).Set(to_unix_seconds(time));
}

void TrainerMetrics::record_nonfinite_losses(int64_t steps) {
  series_->nonfinite_loss.Increment(static_cast<double>(steps));
}
void TrainerMetrics::record_nonfinite_gradients(int64_t steps) {
  series_->nonfinite_gradient.Increment(static_cast<double>(steps));
}
void TrainerMetrics::set_gradient_norm(double norm) { series_->gradient_norm.Add({}).Set(norm); }
void TrainerMetrics::record_parameter_check(bool equal) {
  (equal ? series_->parameters_equal : series_->parameters_diverged).Increment();
}
void TrainerMetrics::record_communication_error() { series_->communication_errors.Increment(); }

}  // namespace oarlock
