#include "trainer/telemetry/metrics.h"

namespace oarlock {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

const Labels kAllReduce = {{"op", "all_reduce"}, {"group", "dp"}};

const Histogram::BucketBoundaries kStepBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                  0.5,   1,      2.5,   5,    10,    30,   60,  300};
const Histogram::BucketBoundaries kLongBuckets = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

double seconds_since_epoch(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// Counters that are computed elsewhere are brought up to a value.
void raise_to(prometheus::Counter& counter, double value) {
  if (const double missing = value - counter.Value(); missing > 0) counter.Increment(missing);
}

class Families {
 public:
  Families(prometheus::Registry& registry, int rank) : registry_(registry), labels_{{"rank", std::to_string(rank)}} {}

  auto& gauge(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_);
  }
  auto& counter(const char* name, const char* help) {
    return BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_);
  }
  auto& histogram(const char* name, const char* help) {
    return BuildHistogram().Name(name).Help(help).Labels(labels_).Register(registry_);
  }

 private:
  prometheus::Registry& registry_;
  Labels labels_;
};

}  // namespace

TrainerMetrics::TrainerMetrics(int rank, int world_size, const BuildInfo& build, const RunInfo& run)
    : registry_(std::make_shared<prometheus::Registry>()) {
  Families families(*registry_, rank);
  families.gauge("trainer_build_info", "The program; the value is always 1.")
      .Add({{"version", build.version},
            {"revision", build.revision},
            {"libtorch", build.libtorch},
            {"cuda", build.cuda},
            {"nccl", build.nccl}})
      .Set(1);
  families.gauge("trainer_run_info", "The run; the value is always 1.")
      .Add({{"run_id", run.run_id}, {"model", run.model}, {"strategy", run.strategy}, {"precision", run.precision}})
      .Set(1);
  families.gauge("trainer_world_size", "Ranks in the job.").Add({}).Set(world_size);
  steps_ = &families.counter("trainer_steps_total", "Optimizer steps that this process has done.").Add({});
  current_step_ = &families.gauge("trainer_current_step", "Optimizer steps done, over all attempts.").Add({});
  target_steps_ =
      &families.gauge("trainer_target_steps", "Optimizer steps of the whole run; 0: not known yet.").Add({});
  last_step_timestamp_ = &families
                              .gauge("trainer_last_step_timestamp_seconds",
                                     "When the last step ended, in seconds since the epoch; 0: none yet.")
                              .Add({});
  learning_rate_ = &families.gauge("trainer_learning_rate", "Learning rate of the last step.").Add({});
  samples_ = &families.counter("trainer_samples_total", "Samples that this rank has trained on.").Add({});
  tokens_ = &families.counter("trainer_tokens_total", "Positions of sequences that this rank has trained on.");
  data_bytes_ =
      &families.counter("trainer_data_read_bytes_total", "Bytes of the batches that this rank trained on.").Add({});
  data_errors_ = &families.counter("trainer_data_errors_total", "Batches that could not be made.").Add({});
  data_queue_ = &families.gauge("trainer_data_queue_batches", "Batches that lay ready after the last step.").Add({});
  data_queue_capacity_ =
      &families.gauge("trainer_data_queue_capacity_batches", "Batches that may lie ready; 0: made when needed.")
           .Add({});
  flops_ = &families.counter("trainer_model_flops_total",
                             "Floating-point operations of the model: matrix products, convolutions and attention of "
                             "the first step's forward, times three for the backward, by samples.");
  peak_flops_ = &families.gauge("trainer_device_peak_flops",
                                "What the device can do in a second in the run's precision, by its data sheet.");
  device_allocated_ = &families.gauge("trainer_device_memory_allocated_bytes", "Device memory of tensors.");
  device_reserved_ = &families.gauge("trainer_device_memory_reserved_bytes", "Device memory that the process holds.");
  device_peak_ = &families.gauge("trainer_device_memory_peak_bytes", "Most device memory of tensors until now.");
  device_limit_ = &families.gauge("trainer_device_memory_limit_bytes", "Device memory that the process may take.");
  device_retries_ = &families.counter("trainer_device_alloc_retries_total",
                                      "Allocations that worked only when cached device memory was given back.");
  device_ooms_ = &families.counter("trainer_device_ooms_total", "Allocations of device memory that failed.");
  step_duration_ = &families.histogram("trainer_step_duration_seconds", "Time of one step, waiting for data included.")
                        .Add({}, kStepBuckets);
  rendezvous_duration_ =
      &families.histogram("trainer_rendezvous_duration_seconds", "Time until all ranks had met.").Add({}, kLongBuckets);
  auto& nonfinite = families.counter("trainer_nonfinite_steps_total",
                                     "Steps whose loss was not finite on a rank, and steps skipped as a gradient was "
                                     "not.");
  nonfinite_loss_ = &nonfinite.Add({{"kind", "loss"}});
  nonfinite_gradient_ = &nonfinite.Add({{"kind", "gradient"}});
  auto& checks = families.counter("trainer_parameter_checks_total", "Comparisons of all ranks' parameters.");
  parameters_equal_ = &checks.Add({{"result", "equal"}});
  parameters_diverged_ = &checks.Add({{"result", "diverged"}});
  communication_errors_ =
      &families.counter("trainer_comm_errors_total", "Collectives that failed.").Add({{"kind", "peer_lost"}});

  recomputed_steps_ = &families
                           .counter("trainer_recomputed_steps_total",
                                    "Steps that an earlier attempt had done after its last checkpoint.")
                           .Add({});

  auto& phases = families.counter("trainer_phase_seconds_total",
                                  "Time by phase; the phases are exclusive and sum up to the uptime.");
  for (size_t i = 0; i < phases_.size(); ++i) phases_[i] = &phases.Add({{"phase", std::string(kPhaseNames[i])}});
  all_reduce_operations_ =
      &families
           .counter("trainer_collective_operations_total", "Buckets of gradients that were averaged over the ranks.")
           .Add(kAllReduce);
  all_reduce_bytes_ =
      &families.counter("trainer_collective_bytes_total", "Bytes of this rank's gradients in collectives.")
           .Add(kAllReduce);
  all_reduce_seconds_ = &families
                             .counter("trainer_collective_seconds_total",
                                      "Time that training waited for collectives: of the gradients, what backward "
                                      "did not hide.")
                             .Add(kAllReduce);
  loss_ = &families.gauge("trainer_loss", "Mean training loss over the ranks, at the last logged step.");
  gradient_norm_ = &families.gauge("trainer_gradient_norm",
                                   "Norm of all gradients together before clipping, at the last logged step.");
  validation_loss_ = &families.gauge("trainer_validation_loss", "Loss of the last evaluation.");
  last_checkpoint_step_ = &families.gauge("trainer_last_checkpoint_step", "Step of the newest complete checkpoint.");
  last_checkpoint_timestamp_ = &families.gauge("trainer_last_checkpoint_timestamp_seconds",
                                               "When the newest checkpoint was complete, in seconds since the epoch.");
  checkpoint_operations_ = &families.counter("trainer_checkpoint_operations_total", "Checkpoints saved and restored.");
  checkpoint_bytes_ = &families.counter("trainer_checkpoint_bytes_total", "Bytes of checkpoints written and read.");
  checkpoint_duration_ =
      &families.histogram("trainer_checkpoint_duration_seconds", "Time to save or restore a checkpoint.");
}

void TrainerMetrics::set_target_steps(int64_t steps) { target_steps_->Set(static_cast<double>(steps)); }
void TrainerMetrics::set_step(int64_t step) { current_step_->Set(static_cast<double>(step)); }

void TrainerMetrics::step_done(const StepReport& report, SystemTime now) {
  steps_->Increment();
  current_step_->Set(static_cast<double>(report.step));
  samples_->Increment(static_cast<double>(report.local_samples));
  step_duration_->Observe(report.seconds);
  learning_rate_->Set(report.learning_rate);
  last_step_timestamp_->Set(seconds_since_epoch(now));
  data_bytes_->Increment(static_cast<double>(report.data_bytes));
  data_queue_->Set(static_cast<double>(report.batches_ready));
  if (report.tokens > 0) tokens_->Add({}).Increment(static_cast<double>(report.tokens));
  if (report.flops > 0) flops_->Add({}).Increment(report.flops);
}

void TrainerMetrics::set_data_queue_capacity(int64_t batches) {
  data_queue_capacity_->Set(static_cast<double>(batches));
}
void TrainerMetrics::data_failed() { data_errors_->Increment(); }
void TrainerMetrics::set_peak_flops(double flops) { peak_flops_->Add({}).Set(flops); }

void TrainerMetrics::set_device_memory(const DeviceMemoryReport& memory) {
  device_allocated_->Add({}).Set(static_cast<double>(memory.allocated_bytes));
  device_reserved_->Add({}).Set(static_cast<double>(memory.reserved_bytes));
  device_peak_->Add({}).Set(static_cast<double>(memory.peak_bytes));
  device_limit_->Add({}).Set(static_cast<double>(memory.limit_bytes));
  raise_to(device_retries_->Add({}), static_cast<double>(memory.retries));
  raise_to(device_ooms_->Add({}), static_cast<double>(memory.out_of_memory));
}

void TrainerMetrics::set_loss(double loss) { loss_->Add({}).Set(loss); }
void TrainerMetrics::set_validation_loss(double loss) { validation_loss_->Add({}).Set(loss); }

void TrainerMetrics::set_phases(const std::array<double, kPhaseNames.size()>& seconds) {
  for (size_t i = 0; i < seconds.size(); ++i) raise_to(*phases_[i], seconds[i]);
  raise_to(*all_reduce_seconds_, seconds[static_cast<size_t>(Phase::kComm)]);
}

void TrainerMetrics::rendezvous_done(double seconds) { rendezvous_duration_->Observe(seconds); }

void TrainerMetrics::gradients_reduced(int64_t buckets, int64_t bytes) {
  all_reduce_operations_->Increment(static_cast<double>(buckets));
  all_reduce_bytes_->Increment(static_cast<double>(bytes));
}

void TrainerMetrics::checkpoint_done(bool save, bool success, int64_t bytes, double seconds) {
  const std::string operation = save ? "save" : "restore";
  checkpoint_operations_->Add({{"operation", operation}, {"result", success ? "success" : "failure"}}).Increment();
  if (!success) return;
  checkpoint_bytes_->Add({{"operation", operation}}).Increment(static_cast<double>(bytes));
  checkpoint_duration_->Add({{"operation", operation}, {"mode", save ? "async" : "sync"}}, kLongBuckets)
      .Observe(seconds);
}

void TrainerMetrics::steps_lost(int64_t steps) { recomputed_steps_->Increment(static_cast<double>(steps)); }

void TrainerMetrics::set_last_checkpoint(int64_t step, SystemTime time) {
  last_checkpoint_step_->Add({}).Set(static_cast<double>(step));
  last_checkpoint_timestamp_->Add({}).Set(seconds_since_epoch(time));
}

void TrainerMetrics::nonfinite_losses(int64_t steps) { nonfinite_loss_->Increment(static_cast<double>(steps)); }
void TrainerMetrics::nonfinite_gradients(int64_t steps) { nonfinite_gradient_->Increment(static_cast<double>(steps)); }
void TrainerMetrics::set_gradient_norm(double norm) { gradient_norm_->Add({}).Set(norm); }
void TrainerMetrics::parameters_checked(bool equal) { (equal ? parameters_equal_ : parameters_diverged_)->Increment(); }
void TrainerMetrics::communication_error() { communication_errors_->Increment(); }

}  // namespace oarlock
