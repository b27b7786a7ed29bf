// Peak throughput of CUDA devices according to their data sheets: the denominator of the model FLOPs utilization (MFU).
#pragma once

#include <optional>
#include <string_view>

namespace oarlock {

enum class MatmulPrecision { kFloat32, kTf32, kHalf };  // kHalf: float16 or bfloat16

// Floating-point operations per second of dense matrix products, with tensor cores if they support the precision.
// `device` is the name that CUDA reports, such as "NVIDIA H100 80GB HBM3". nullopt for an unknown device. Pure.
std::optional<double> peak_flops(std::string_view device, MatmulPrecision precision);

}  // namespace oarlock
