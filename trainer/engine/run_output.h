// What rank 0 prints and logs of a run: its sizes at the beginning, and its results at the end.
#pragma once

#include <string>

#include "common/log.h"
#include "ddp/distributed_data_parallel_base.h"
#include "ddp/process_group.h"
#include "trainer/config/config.h"
#include "trainer/engine/task.h"
#include "trainer/engine/train_loop.h"
#include "trainer/report/run_summary.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// "fp32", "bf16" or "fp16".
std::string precision_name(const AmpConfig& amp);

// Of a run of the group's ranks that begins or resumes at the step 0 and whose end is not known; the caller sets the
// steps otherwise. `config` is that after apply_plan().
RunHeader run_header(const TrainerConfig& config, const BatchPlan& plan, Task& task,
                     const DistributedDataParallelBase& model, const ProcessGroup& group);

// Logs the values that depend on the number of ranks.
void log_plan(const RunHeader& header, const BatchPlan& plan, const ProcessGroup& group, const Logger& logger);

// `monitor` is the metric by which models are compared, and `seconds` the time of this process.
RunSummary run_summary(const TrainSummary& summary, const std::string& monitor, double seconds, int world_size,
                       const Telemetry& telemetry);
void log_summary(const RunSummary& summary, const Logger& logger);

}  // namespace oarlock
