// What CUDA devices can do, by their data sheets: the denominator of a model FLOPs utilisation.
#pragma once

#include <optional>
#include <string_view>

namespace oarlock {

enum class MatmulPrecision { kFloat32, kTf32, kHalf };  // kHalf: float16 or bfloat16

// Floating-point operations a second of dense matrix products, on tensor cores where they take part; `device` is the
// name that CUDA gives it, such as "NVIDIA H100 80GB HBM3". Nothing for a device that is not in the table. Pure.
std::optional<double> peak_flops(std::string_view device, MatmulPrecision precision);

}  // namespace oarlock
