// Memory for samples that stay in it for the whole run, and of which batches take a few here and there.
#pragma once

#include <ATen/core/Tensor.h>

namespace oarlock {

// Uninitialised, contiguous, on the CPU. In huge pages where the kernel has them to give: each sample of a batch lies
// elsewhere, and with small pages the processor spends a third of the time of a copy on looking up addresses.
at::Tensor empty_samples(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace oarlock
