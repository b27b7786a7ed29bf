// Rotary position embedding (Su et al. 2021), as model/rotary.py of
// https://github.com/louaaron/Score-Entropy-Discrete-Diffusion: the two halves of a head's features are the coordinates
// that are turned.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace oarlock {

// Cosines and sines of position * frequency, float [length, 1, 1, features / 2].
struct RotaryAngles {
  at::Tensor cos;
  at::Tensor sin;
};

// Buffer: inv_freq [features / 2].
class Rotary final : public torch::nn::Module {
 public:
  // Of a head; even.
  explicit Rotary(int64_t features);

  // Of positions 0 .. length - 1; kept for the next call.
  const RotaryAngles& angles(int64_t length);

 private:
  at::Tensor inverse_frequencies_;
  RotaryAngles angles_;
};

// Turns [n, length, ..., features] by its position's angles, in the tensor's own type.
at::Tensor rotated(const at::Tensor& features, const RotaryAngles& angles);

}  // namespace oarlock
