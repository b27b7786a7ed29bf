// The parts of a run (optimizer, gradient scaler, moving average, ...) that have state in a checkpoint.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/error.h"
#include "trainer/checkpoint/safetensors.h"

namespace oarlock {

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

  // Called after the saved tensors were copied into tensors(). Restores `values`. Returns kDataErr if they are invalid;
  // the message names the value.
  virtual Result<void> restored(const nlohmann::json& values) = 0;

  // Called on every rank instead of restored() if the checkpoint has no such section, because this part was added to
  // the configuration later. The part starts with fresh state; the model has its restored parameters. Returns kConfig
  // if that is not possible.
  virtual Result<void> missing() = 0;
};

// Copies the values of `from` into the tensors of `to`. Names, shapes and dtypes must be equal; otherwise copies
// nothing and returns kDataErr, naming the tensor. `what` names the kind of tensors in the message.
Result<void> copy_tensors(const TensorMap& from, const TensorMap& to, const std::string& what);

}  // namespace oarlock
