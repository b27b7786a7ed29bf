#include "trainer/device/peak_flops.h"

#include <array>

namespace oarlock {
namespace {

constexpr double kTera = 1e12;

struct DataSheet {
  std::string_view part;  // a word of the device's name; the first match counts
  double float32;
  double tf32;  // equals float32 if the device has no TF32
  double half;
};

// From NVIDIA's data sheets, without sparsity.
constexpr std::array<DataSheet, 10> kDataSheets = {{
    {"H200", 66.9 * kTera, 494.7 * kTera, 989.4 * kTera},
    {"H100 PCIe", 51.2 * kTera, 378 * kTera, 756 * kTera},
    {"H100", 66.9 * kTera, 494.7 * kTera, 989.4 * kTera},
    {"A100", 19.5 * kTera, 156 * kTera, 312 * kTera},
    {"L40S", 91.6 * kTera, 183 * kTera, 362 * kTera},
    {"L4", 30.3 * kTera, 60 * kTera, 121 * kTera},
    {"A10G", 31.2 * kTera, 35 * kTera, 70 * kTera},
    {"A10", 31.2 * kTera, 62.5 * kTera, 125 * kTera},
    {"V100", 15.7 * kTera, 15.7 * kTera, 125 * kTera},
    {"T4", 8.1 * kTera, 8.1 * kTera, 65 * kTera},
}};

// Matches whole words only: "L4" does not match "NVIDIA L40".
bool contains_word(std::string_view device, std::string_view part) {
  const size_t at = device.find(part);
  if (at == std::string_view::npos) return false;
  const size_t end = at + part.size();
  return end == device.size() || device[end] == ' ' || device[end] == '-';
}

}  // namespace

std::optional<double> peak_flops(std::string_view device, MatmulPrecision precision) {
  for (const DataSheet& sheet : kDataSheets) {
    if (!contains_word(device, sheet.part)) continue;
    switch (precision) {
      case MatmulPrecision::kFloat32:
        return sheet.float32;
      case MatmulPrecision::kTf32:
        return sheet.tf32;
      case MatmulPrecision::kHalf:
        return sheet.half;
    }
  }
  return std::nullopt;
}

}  // namespace oarlock
