// What a part of the run (optimizer, gradient scaler, moving average ...) adds to a checkpoint.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "common/error.h"
#include "trainer/checkpoint/safetensors.h"

namespace oarlock {

// The state is the same on all ranks. Saving reads rank 0's; restoring copies into rank 0's live tensors, broadcasts
// them, and then calls restored() on every rank with the same values.
class Stateful {
 public:
  virtual ~Stateful() = default;

  // Of the section, [a-z0-9_-]+: its tensors are <section>.safetensors, its values lie in state.json under this name.
  virtual std::string_view section() const = 0;

  // The live tensors by name; may be empty. The names are the same at every step.
  virtual TensorMap tensors() const = 0;

  // What is not a tensor; an empty object where there is nothing. No NaN: JSON has none.
  virtual nlohmann::json values() const = 0;

  // The tensors hold what was saved; takes the values, too. kDataErr, naming what is wrong.
  virtual Result<void> restored(const nlohmann::json& values) = 0;

  // On every rank in place of restored(): the checkpoint that the run goes on from has no such section, as this part is
  // new in the configuration. It begins here; the model holds its restored parameters. kConfig where that cannot be.
  virtual Result<void> missing() = 0;
};

}  // namespace oarlock
