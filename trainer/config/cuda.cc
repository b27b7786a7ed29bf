#include "trainer/config/cuda.h"

namespace oarlock {

void describe(CudaConfig& config, Fields& fields) {
  fields.field("graphs", config.graphs, "record a training step as a CUDA graph and replay it; shapes must not change");
  fields.field("channels_last", config.channels_last, "images and their weights with the channel innermost");
  fields.field("tf32", config.tf32, "matrix products and convolutions of float32 in TF32: faster, 10 bits of mantissa");
  fields.field("memory_fraction", config.memory_fraction, above_to(0, 1),
               "of the device's memory that a rank may take; beyond it, out of memory");
  fields.field("cudnn_benchmark", config.cudnn_benchmark, "cuDNN tries its algorithms on each new shape");
  fields.field("deterministic", config.deterministic, "only kernels that give the same bits every time");
  if (config.cudnn_benchmark && config.deterministic) {
    fields.problem("cudnn_benchmark",
                   "picks kernels by their speed, so a run is not repeatable; remove it or cuda.deterministic");
  }
}

}  // namespace oarlock
