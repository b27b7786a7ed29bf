// The content of one checkpoint, and reading and writing its folder. docs/checkpoint-format.md describes the files.
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

// The writer of a checkpoint. `attempt` orders the writers of one job.
struct CheckpointOwner {
  std::string uid;  // UID of the job; empty outside Kubernetes
  int attempt = 0;  // number of earlier starts of the group

  bool operator==(const CheckpointOwner&) const = default;
};

// The content of state.json. `extra` holds further state of the engine.
struct CheckpointState {
  int64_t step = 0;             // completed optimizer steps
  int64_t high_water_step = 0;  // highest step that the job ever reached, including lost steps; at least `step`
  int64_t epoch = 0;            // current epoch, from 0
  int64_t epoch_samples = 0;    // samples of the epoch consumed by all ranks together: `start` of DistributedSampler
  int world_size = 1;           // number of ranks that trained
  CheckpointOwner owner;        // set by CheckpointStore::save
  nlohmann::json sections = nlohmann::json::object();  // the values of each Stateful by its section
  nlohmann::json extra = nlohmann::json::object();     // must not contain NaN
};

inline constexpr char kModelTensors[] = "model";  // the section of parameters and buffers

// A snapshot in memory. It is self-contained, so that another thread can write it while training continues.
struct Checkpoint {
  CheckpointState state;
  std::map<std::string, TensorMap> tensors;  // "model" -> model.safetensors; names are [a-z0-9_-]+
};

// Writes all files, manifest.json last, and syncs them and the folder to disk. The folder must exist and be empty.
// Returns the number of bytes written, kIoErr (including a full disk), kCantCreate, or kUsage if a tensor cannot be
// stored as safetensors.
Result<int64_t> write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder);

// Verifies the files of a folder against its manifest: names, sizes and XXH3-128 checksums. Returns the step. The error
// code states whether the checkpoint is damaged or cannot be read; see read_manifest().
Result<int64_t> verify_checkpoint(const std::filesystem::path& folder);

// Reads and verifies a checkpoint. Each byte is read once. The tensors are on the CPU and own their memory. Returns the
// codes of read_manifest().
Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder);

}  // namespace oarlock
