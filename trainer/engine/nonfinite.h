// Steps whose loss or gradients are NaN or infinite: counting them on the device, undoing the writes of a skipped
// step, and the policy that ends a run (section "nonfinite").
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/optimization.h"

namespace oarlock {

// Counts the steps whose loss is not finite and the skipped steps, and records the first of each.
class NonfiniteSteps final : public Stateful {
 public:
  struct Count {
    int64_t steps = 0;             // in this process
    int64_t in_a_row = 0;          // up to the last step; of skipped ones, also in earlier processes
    std::optional<int64_t> first;  // the first since the last read(), as a number of steps before the last step
  };
  struct Reading {
    Count loss;     // this rank's loss was not finite
    Count skipped;  // the same on all ranks
  };

  explicit NonfiniteSteps(at::Device device);

  // Counts a step without waiting for the device. The work is the same in every step, so that a CUDA graph can record
  // it. `loss` is a scalar; `skipped` is a float32 scalar that is not 0 if the step was skipped, or undefined. Both are
  // on the device.
  void count(const at::Tensor& loss, const at::Tensor& skipped);

  // The input of read(), as doubles on the device, to be copied to the host together with other values.
  std::vector<at::Tensor> on_device() const;
  static constexpr size_t kValues = 7;
  Reading read(const double* values);

  // Skipped steps of the whole run, including earlier processes, as of the last read().
  int64_t skipped_in_run() const { return before_ + skipped_; }

  std::string_view section() const override { return "nonfinite"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override;  // includes the steps since the last read(); waits for the device
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
  int64_t skipped_so_far() const;  // in this process

  at::Device device_;
  OnHost host_;  // with a CPU device, whose scalars can be read without waiting
  // Used with a CUDA device: an int64 scalar, and tensors [2] for loss and skipped.
  at::Tensor steps_;
  at::Tensor counts_;
  at::Tensor first_;
  at::Tensor in_a_row_;
  at::Tensor never_;
  int64_t before_ = 0;   // skipped in earlier processes
  int64_t skipped_ = 0;  // skipped in this process, as of the last read()
};

// The results of the last step, read from the device.
struct StepReading {
  double loss = 0;                      // this rank's mean over the samples of the step
  std::optional<double> gradient_norm;  // before clipping; with gradient.clip_norm
  std::optional<double> loss_scale;     // with amp.dtype: fp16
  int64_t nonfinite_losses = 0;         // steps of this process whose loss was not finite on this rank
  int64_t skipped = 0;                  // skipped steps of this process
  int64_t skipped_in_a_row = 0;         // up to the last step
  // The first of them since the previous reading, as the number of steps completed with it.
  std::optional<int64_t> first_nonfinite_loss;
  std::optional<int64_t> first_skipped;
};

struct NonfiniteStop {
  std::string reason;  // "NonFiniteLoss", "NonFiniteGradient"
  Error error;         // kDataErr
};

// Whether the loss or the skipped steps end the run after this step. `loss` is the mean over all ranks, so that all
// ranks decide the same. Pure.
std::optional<NonfiniteStop> check_finite(const NonfiniteConfig& policy, int64_t step, double loss,
                                          const StepReading& reading);

// Whether too large a fraction of the run's steps was skipped. Checked once max_consecutive steps have been made, or
// when the run has `ended`. Pure.
std::optional<NonfiniteStop> check_share(const NonfiniteConfig& policy, int64_t step, int64_t skipped_in_run,
                                         bool ended);

}  // namespace oarlock
