// One checkpoint: what it holds, and how it lies in its folder. docs/checkpoint-format.md describes the files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/error.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace oarlock {

// Who writes: the job and how often its group was started before. Orders the writers of one job.
struct CheckpointOwner {
  std::string uid;  // of the job; "" where there is none
  int attempt = 0;

  bool operator==(const CheckpointOwner&) const = default;
};

// state.json. What the engine needs beyond these goes into `extra`.
struct CheckpointState {
  int64_t step = 0;             // optimizer steps done
  int64_t high_water_step = 0;  // the most that were ever done, also by runs that were lost; at least `step`
  int64_t epoch = 0;            // the epoch under way, from 0
  int64_t epoch_samples = 0;    // of it, samples consumed by all ranks together: DistributedSampler's `start`
  int world_size = 1;           // ranks that trained
  CheckpointOwner owner;        // set by CheckpointStore::save
  nlohmann::json sections = nlohmann::json::object();  // of each Stateful its values, by its section
  nlohmann::json extra = nlohmann::json::object();     // no NaN: JSON has none
};

inline constexpr char kModelTensors[] = "model";  // parameters and buffers by their names

// A snapshot in memory. Writing it needs nothing else, so that it may happen on another thread while training goes on.
struct Checkpoint {
  CheckpointState state;
  std::map<std::string, TensorMap> tensors;  // "model" -> model.safetensors; names are [a-z0-9_-]+
};

// Writes every file and, last, manifest.json; each is fsynced, and so is the folder. The folder must exist and be
// empty. Gives the bytes written. kIoErr (disk full included), kCantCreate; kUsage: a tensor that safetensors cannot
// hold.
Result<int64_t> write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder);

// Checks the folder against its manifest: names, sizes, XXH3-128 checksums. Gives the step. The error's code states
// whether the checkpoint is damaged or cannot be read: see read_manifest().
Result<int64_t> verify_checkpoint(const std::filesystem::path& folder);

// Reads and verifies all of it, each byte once. Tensors are on the CPU and own their memory. The codes of
// read_manifest().
Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder);

}  // namespace oarlock
