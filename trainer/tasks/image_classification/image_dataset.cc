#include "trainer/tasks/image_classification/image_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace oarlock {
namespace {

using Histogram = std::array<int64_t, 256>;

std::pair<double, double> mean_and_deviation(const Histogram& histogram) {
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  for (size_t value = 0; value < histogram.size(); ++value) {
    const double scaled = static_cast<double>(value) / 255;
    const auto times = static_cast<double>(histogram[value]);
    count += times;
    sum += scaled * times;
    sum_of_squares += scaled * scaled * times;
  }
  const double mean = sum / count;
  const double variance = std::max(sum_of_squares / count - mean * mean, 0.0);
  return {mean, variance > 0 ? std::sqrt(variance) : 1};
}

}  // namespace

Normalization statistics_of(const ImageSet& images) {
  const int64_t plane = images.shape.height * images.shape.width;
  std::vector<Histogram> histograms(static_cast<size_t>(images.shape.channels), Histogram{});
  for (const uint8_t* pixel : images.pixels) {
    for (Histogram& histogram : histograms) {
      for (const uint8_t* end = pixel + plane; pixel != end; ++pixel) ++histogram[*pixel];
    }
  }
  Normalization out;
  for (const Histogram& histogram : histograms) {
    const auto [mean, deviation] = mean_and_deviation(histogram);
    out.mean.push_back(mean);
    out.std.push_back(deviation);
  }
  return out;
}

ImageDataset::ImageDataset(ImageSet images, const Normalization& normalization, const Augmentation& augmentation)
    : images_(std::move(images)), augmentation_(augmentation) {
  for (size_t channel = 0; channel < normalization.mean.size(); ++channel) {
    auto& table = tables_.emplace_back();
    for (size_t value = 0; value < table.size(); ++value) {
      const double scaled = static_cast<double>(value) / 255;
      table[value] = static_cast<float>((scaled - normalization.mean[channel]) / normalization.std[channel]);
    }
  }
}

void ImageDataset::make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const {
  const auto count = static_cast<int64_t>(indices.size());
  const auto& [channels, height, width] = images_.shape;
  auto* to = batch.allocate("image", {count, channels, height, width}, at::kFloat).mutable_data_ptr<float>();
  auto* label = batch.allocate("label", {count}, at::kLong).mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    const auto i = static_cast<size_t>(index);
    copy_view(images_.pixels[i], images_.shape, random_view(augmentation_, seed, index), tables_, to);
    to += channels * height * width;
    *label++ = images_.labels[i];
  }
}

}  // namespace oarlock
