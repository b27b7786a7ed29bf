// Drawing from many categorical distributions at once.
#pragma once

#include <ATen/core/Tensor.h>

namespace oarlock {

// int64 [n, length]: the state that each position draws from weights [n, length, states] (they need not sum to 1;
// negative ones count as 0) with a uniform number in [0, 1) of [n, length], by inverting the distribution function. A
// state of weight 0 is never drawn where another has more. (The original draws by Gumbel's trick, which takes a random
// number per state.)
at::Tensor draw_categorical(const at::Tensor& weights, const at::Tensor& uniform);

}  // namespace oarlock
