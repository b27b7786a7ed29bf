// Counts the steps whose loss is not finite and those that were skipped, and records which was the first.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/checkpoint/stateful.h"

namespace oarlock {

class NonfiniteSteps final : public Stateful {
 public:
  struct Count {
    int64_t steps = 0;             // in this process's life
    int64_t in_a_row = 0;          // up to the last step
    std::optional<int64_t> first;  // of those since the last read(), as a number of steps before the last one
  };
  struct Reading {
    Count loss;     // this rank's loss was not finite
    Count skipped;  // on all ranks alike
  };

  explicit NonfiniteSteps(at::Device device);

  // Counts a step without waiting for the device: the same work every time, so that a CUDA graph may record it.
  // `loss` is a scalar; `skipped` a float32 scalar that is not 0 where the step was skipped, or undefined. Both are on
  // the device.
  void count(const at::Tensor& loss, const at::Tensor& skipped);

  // What read() needs, as doubles on the device: to be copied to the host together with other values.
  std::vector<at::Tensor> on_device() const;
  static constexpr size_t kValues = 7;
  Reading read(const double* values);

  // Of the whole run, earlier processes included, as of the last read().
  int64_t skipped_in_run() const { return before_ + skipped_; }

  std::string_view section() const override { return "nonfinite"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override { return {{"skipped", skipped_in_run()}}; }
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  struct OnHost {
    int64_t steps = 0;
    std::array<int64_t, 2> counts{};
    std::array<int64_t, 2> first{};
    std::array<int64_t, 2> in_a_row{};
  };
  void count_on_host(bool loss, bool skipped);

  at::Device device_;
  OnHost host_;  // on a CPU device, where nothing waits
  // On a CUDA device: int64 scalar, and [2] of loss and skipped.
  at::Tensor steps_;
  at::Tensor counts_;
  at::Tensor first_;
  at::Tensor in_a_row_;
  at::Tensor never_;
  int64_t before_ = 0;   // skipped in earlier processes
  int64_t skipped_ = 0;  // in this one, as of the last read()
};

}  // namespace oarlock
