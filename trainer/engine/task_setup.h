// A task before training: created from the configuration, its data prepared and opened, and the weights of a file
// loaded into its model.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "ddp/process_group.h"
#include "ddp/safetensors.h"
#include "trainer/config/config.h"
#include "trainer/config/load.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"

namespace oarlock {

struct ConfiguredTask {
  TrainerConfig config;
  nlohmann::json printed;      // the configuration with every default, for users
  AgreedValues agreed;         // see CompleteConfig
  std::unique_ptr<Task> task;  // not prepared
  bool is_of_job = false;      // spec.trainer of a TrainingJob
};

// Reads the configuration and creates its task. Fails as load_config() does, and with kConfig if the task does not
// support the configuration.
Result<ConfiguredTask> load_task(const ConfigSource& source, const TaskTable& tasks);

// The names and descriptions of all tasks, for printing and for the reference page. The table must outlive the result.
TaskNames task_names(const TaskTable& tasks);

// prepare_data() and open_data() are called by all ranks together and may take any time. They run the task's function
// on another thread while the ranks exchange short messages, which detects the loss of a rank. They return kTempFail
// within about half a second after the ranks have agreed to stop. The thread then continues until the process ends, so
// the task must not be destroyed.

// Runs Task::prepare_data() on the ranks that Task::prepare_on() selects, while the others wait. A failure is returned
// on all ranks; with PrepareOn::kOneRank, with the message of that rank.
Result<void> prepare_data(Task& task, const ProcessGroup& group, int local_rank, StopAgreement& stop,
                          const Logger& log);

// Runs Task::prepare() on every rank, and returns what must be equal in the data of all ranks. A failure is returned on
// the rank where it happened. Fails as check_equal_on_all_ranks() (ddp/process_group.h) if the data differ.
Result<AgreedValues> open_data(Task& task, const ProcessGroup& group, StopAgreement& stop);

// A number that differs if the data do. At most kMaxComparedNumber. Pure.
int64_t digest_of(const AgreedValues& data);

// ---- Batches of one sample ---------------------------------------------------------------------------------------

// Runs a training step with one sample, and restores the parameters and buffers. Fails with kConfig if the model needs
// more samples, as batch normalization does whose channels have one value per sample. Other failures are not reported:
// training reports them. All ranks must call it, because batch normalization may be synchronized.
Result<void> try_single_sample(Task& task, torch::nn::Module& module, const at::Device& device);

// ---- Pretrained weights ------------------------------------------------------------------------------------------

// The result of loading, by tensor name.
struct PretrainedReport {
  int64_t loaded = 0;
  std::vector<std::string> missing;     // in the model, not in the file
  std::vector<std::string> unexpected;  // in the file, not in the model
  std::vector<std::string> misshapen;   // in both, with the two shapes
  std::vector<std::string> differing;   // constants of the model, and tied weights, with other values in the file

  bool fits() const { return missing.empty() && unexpected.empty() && misshapen.empty() && differing.empty(); }
  std::string misfit() const;  // a description with the first few names; empty if it fits
};

// Copies the tensors whose names and shapes match those of the model's parameters and buffers, and converts their type.
// A prefix "module." (DistributedDataParallel) or "_orig_mod." (torch.compile) that all names of the file have is
// removed. The file may contain a tied weight under one or all of its names, and the constants of the model
// (derived_tensors()), if their values are equal. With strict, nothing is copied unless everything matches. `tensors`
// are those of the file config.path. Fails with kDataErr, which names tensors.
Result<PretrainedReport> load_pretrained(const PretrainedConfig& config, TensorMap tensors,
                                         const torch::nn::Module& module);

// Reads the file config.path. Fails as read_safetensors() does, and names the conversion of a file of torch.save().
Result<SafetensorsFile> read_pretrained(const PretrainedConfig& config);

// Removes the prefixes that all names have. Pure.
TensorMap without_wrappers(TensorMap tensors);

}  // namespace oarlock
