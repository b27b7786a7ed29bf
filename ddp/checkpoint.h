// Checkpoints of any training program in one safetensors file: the module, the optimizer, and the position in the data.
// Python reads it: safetensors.torch.load_file(path), and safe_open(path, "pt").metadata() for the position. Its
// tensors are "model.<name>" for parameters and buffers, "optimizer.<parameter>.<state>" (ddp/optimizer_state.h) and
// "extra.<name>". The trainer of Oarlock has directories of several files (docs/checkpoint-format.md) in the same
// format (ddp/safetensors.h).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <optional>

#include "ddp/process_group.h"
#include "ddp/tensor_map.h"

namespace torch::optim {
class Optimizer;
}

namespace oarlock {

// The position of a run in its data.
struct TrainingPosition {
  int64_t step = 0;           // optimizer steps completed
  int64_t epoch = 0;          // the current epoch, from 0
  int64_t epoch_samples = 0;  // samples of the epoch consumed by all ranks together: `start` of DistributedSampler

  bool operator==(const TrainingPosition&) const = default;
};

// The objects whose state a checkpoint contains. They are not owned, and must exist during the call.
struct TrainingState {
  torch::nn::Module& module;                     // the module itself, *net for a `net` of TORCH_MODULE
  torch::optim::Optimizer* optimizer = nullptr;  // SGD, Adam, AdamW, Adagrad or RMSprop of LibTorch; null: none
  TensorMap tensors{};                           // further tensors by name, such as GradScaler::tensors()
};

// Writes a checkpoint of rank 0's state, and returns on all ranks when it is on the disk. All ranks must call this
// together, at the same step. The file appears under its name only when it is complete: rank 0 writes a temporary file
// next to it, calls fsync(2), renames it, and calls fsync(2) for the directory, so that an existing checkpoint of this
// name remains valid until then. A process that is killed meanwhile leaves a file NAME.tmp-*.
//
// Throws an ErrorException (common/error.h) with the same message on all ranks: kCantCreate or kIoErr if the file
// cannot be written, for example because the disk is full; kUsage if the state cannot be stored. Throws the exceptions
// of the backend if a rank is lost.
//
// Not in the file are the state of PowerSGD and that of random number generators: a program with dropout continues
// exactly if it seeds them from the step. A torch::optim::LRScheduler has no state that can be read: construct it and
// call its step() as often as in the earlier run, and load the checkpoint afterwards, which sets the learning rates.
void save_checkpoint(const std::filesystem::path& path, const TrainingState& state, const TrainingPosition& position,
                     const ProcessGroup& group);

// Reads a checkpoint of save_checkpoint() into the state, and returns its position; or nullopt, without a change, if
// there is no such file. All ranks must call this together. Only rank 0 reads the file, which need not exist on the
// hosts of the others; the number of ranks may differ from that of the earlier run. The module may be wrapped in
// DistributedDataParallel already. Without an optimizer in `state`, that of the file is ignored.
//
// Throws an ErrorException with the same message on all ranks, and then changes nothing: kDataErr if the file is
// damaged, or if a tensor is missing, has no counterpart in the program or another shape or dtype (the message names
// the file, the tensor and both shapes), or if the optimizer is of another class; the codes of fail_errno() if the file
// cannot be read. The content of the file is not trusted (read_safetensors()).
std::optional<TrainingPosition> load_checkpoint(const std::filesystem::path& path, const TrainingState& state,
                                                const ProcessGroup& group);

}  // namespace oarlock
