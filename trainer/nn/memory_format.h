// The layout with the channel innermost (NHWC), in which convolutions are fastest on tensor cores and in oneDNN.
#pragma once

#include <torch/nn/module.h>

namespace oarlock {

// Every parameter and buffer of four dimensions, in place: names and values stay. Before the Reducer is built, whose
// buckets take their strides from the parameters, and before an optimizer makes state like them.
void to_channels_last(torch::nn::Module& module);

// A tensor of four dimensions in that layout; others as they are. With one channel both layouts have the same bytes,
// and only the strides say which is meant.
at::Tensor channels_last(const at::Tensor& tensor);

}  // namespace oarlock
