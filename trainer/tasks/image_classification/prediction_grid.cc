#include "trainer/tasks/image_classification/prediction_grid.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>

namespace oarlock::image_classification {

at::Tensor prediction_grid(const at::Tensor& images, const at::Tensor& right) {
  constexpr int64_t kColumns = 8;
  constexpr int64_t kFrame = 2;  // pixels
  const at::Tensor first = images.size(1) == 3 ? images : images.narrow(1, 0, 1).expand({-1, 3, -1, -1});
  const int64_t n = first.size(0);
  const at::Tensor low = first.amin({1, 2, 3}, true);
  const at::Tensor range = (first.amax({1, 2, 3}, true) - low).clamp_min(1e-6);
  const at::Tensor pixels = (first - low) / range * 255;
  const int64_t height = pixels.size(2) + 2 * kFrame;
  const int64_t width = pixels.size(3) + 2 * kFrame;
  const int64_t columns = std::min(n, kColumns);
  const int64_t rows = (n + columns - 1) / columns;
  const at::Tensor green = at::tensor({0.0F, 160.0F, 60.0F});
  const at::Tensor red = at::tensor({220.0F, 30.0F, 30.0F});
  const at::Tensor grid = at::full({3, rows * height, columns * width}, 255.0F);
  for (int64_t i = 0; i < n; ++i) {
    const at::Tensor tile = grid.narrow(1, i / columns * height, height).narrow(2, i % columns * width, width);
    tile.copy_((right[i].item<bool>() ? green : red).view({3, 1, 1}).expand_as(tile));
    tile.narrow(1, kFrame, pixels.size(2)).narrow(2, kFrame, pixels.size(3)).copy_(pixels[i]);
  }
  return grid.permute({1, 2, 0});
}

std::string prediction_table(const at::Tensor& predicted, const at::Tensor& labels) {
  std::string out = "| image | predicted | label |\n|---:|---:|---:|\n";
  for (int64_t i = 0; i < predicted.size(0); ++i)
    out += fmt::format("| {} | {} | {} |\n", i, predicted[i].item<int64_t>(), labels[i].item<int64_t>());
  return out;
}

}  // namespace oarlock::image_classification
