// The content of one checkpoint, reading and writing its directory, and the interface of the parts of a run that have
// state in it. docs/checkpoint-format.md describes the files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/error.h"
#include "ddp/safetensors.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {

// The writer of a checkpoint. `attempt` orders the writers of one job, and `generation` those of one attempt. Each
// process of rank 0 has a generation that is larger than those of its predecessors in the attempt.
struct CheckpointOwner {
  std::string uid;         // UID of the job; empty outside Kubernetes
  int attempt = 0;         // number of earlier starts of the group
  int64_t generation = 0;  // of the group that the ranks have formed (docs/recovery.md); 0 without recovery
  // The group of this generation: a launcher that was cut off may form one of the same generation. Empty without
  // recovery.
  std::string group{};

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
inline constexpr char kAverageTensors[] = "ema";  // the section of averaged parameters

// A snapshot in memory. It is self-contained, so that another thread can write it while training continues.
struct Checkpoint {
  CheckpointState state;
  std::map<std::string, TensorMap> tensors;  // "model" -> model.safetensors; names are [a-z0-9_-]+
  SafetensorsMetadata model_metadata{};      // of the files of "model" and "ema"; not read back
};

// Writes all files, manifest.json last, and syncs them and the directory to disk. The directory must exist and be
// empty. Returns the number of bytes written, kIoErr (including a full disk), kCantCreate, or kUsage if a tensor cannot
// be stored as safetensors.
Result<int64_t> write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& directory);

// Verifies the files of a directory against its manifest: names, sizes and XXH3-128 checksums. Returns the step. The
// error code states whether the checkpoint is damaged or cannot be read; see read_manifest().
Result<int64_t> verify_checkpoint(const std::filesystem::path& directory);

// Reads and verifies a checkpoint. Each byte is read once. The tensors are on the CPU and own their memory. Returns the
// codes of read_manifest().
Result<Checkpoint> read_checkpoint(const std::filesystem::path& directory);

// Reads and verifies state.json only. Returns the codes of read_manifest().
Result<CheckpointState> read_checkpoint_state(const std::filesystem::path& directory);

// A part of a run (optimizer, gradient scaler, moving average, ...) that has state in a checkpoint.
//
// The state is identical on all ranks. A save uses the state of rank 0. A restore copies into the live tensors of rank
// 0, broadcasts them, and then calls restored() on every rank with the same values.
class Stateful {
 public:
  virtual ~Stateful() = default;

  // Returns the name of the section, [a-z0-9_-]+. Its tensors are in <section>.safetensors, and its values in
  // state.json under this name.
  virtual std::string_view section() const = 0;

  // Returns the live tensors by name; may be empty. The names must be the same at every step.
  virtual TensorMap tensors() const = 0;

  // Returns the state that is not a tensor; an empty object if there is none. It must not contain NaN, which JSON
  // lacks.
  virtual nlohmann::json values() const = 0;

  // Called after the saved tensors were copied into tensors(). Restores `values`. Returns kConfig if they do not fit
  // the configuration. Returns kDataErr or throws nlohmann::json::exception if this release does not write such values;
  // the restore then ends with kCheckpoint.
  virtual Result<void> restored(const nlohmann::json& values) = 0;

  // Called on every rank instead of restored() if the checkpoint has no such section, because this part was added to
  // the configuration later. The part starts with fresh state; the model has its restored parameters. Returns kConfig
  // if that is not possible.
  virtual Result<void> missing() = 0;
};

}  // namespace oarlock
