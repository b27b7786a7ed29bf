#include "workloads/image_classification/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/status_macros.h"
#include "trainer/data/fingerprint.h"
#include "trainer/data/random.h"
#include "workloads/image_classification/images.h"

namespace oarlock::image_classification {
namespace {

using Table = std::array<float, 256>;

// Copies columns [left, left + width) of a row of `width` pixels.
void copy_row(const uint8_t* row, int64_t width, int64_t left, const Table& table, float* to) {
  const int64_t begin = std::clamp<int64_t>(-left, 0, width);
  const int64_t end = std::clamp<int64_t>(width - left, begin, width);
  std::fill(to, to + begin, table[0]);
  for (int64_t x = begin; x < end; ++x) to[x] = table[row[x + left]];
  std::fill(to + end, to + width, table[0]);
}

// The same in reverse order.
void copy_row_flipped(const uint8_t* row, int64_t width, int64_t left, const Table& table, float* to) {
  const int64_t begin = std::clamp<int64_t>(-left, 0, width);
  const int64_t end = std::clamp<int64_t>(width - left, begin, width);
  std::fill(to, to + width - end, table[0]);
  for (int64_t x = begin; x < end; ++x) to[width - 1 - x] = table[row[x + left]];
  std::fill(to + width - begin, to + width, table[0]);
}

void copy_plane(const uint8_t* from, int64_t height, int64_t width, const View& view, const Table& table, float* to) {
  const auto copy = view.flipped ? copy_row_flipped : copy_row;
  for (int64_t y = 0; y < height; ++y, to += width) {
    const int64_t row = y + view.top;
    if (row < 0 || row >= height) {
      std::fill(to, to + width, table[0]);
    } else {
      copy(from + row * width, width, view.left, table, to);
    }
  }
}

}  // namespace

View random_view(const Augmentation& augmentation, uint64_t seed, int64_t sample) {
  SampleRandom random(seed, sample);
  const int64_t places = 2 * augmentation.crop_padding + 1;
  View view;
  view.top = random.below(places) - augmentation.crop_padding;
  view.left = random.below(places) - augmentation.crop_padding;
  view.flipped = augmentation.flip && random.below(2) == 1;
  return view;
}

void copy_view(const uint8_t* from, const ImageShape& shape, const View& view, const PixelTables& tables, float* to) {
  const int64_t plane = shape.height * shape.width;
  for (int64_t channel = 0; channel < shape.channels; ++channel, from += plane, to += plane)
    copy_plane(from, shape.height, shape.width, view, tables[static_cast<size_t>(channel)], to);
}

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

std::string ImageDataset::fingerprint() const {
  const auto& [channels, height, width] = images_.shape;
  FingerprintBuilder out;
  for (const int64_t size : {images_.size(), channels, height, width}) out.add(size);
  for (const uint8_t* pixels : images_.pixels)
    out.add(std::as_bytes(std::span(pixels, static_cast<size_t>(channels * height * width))));
  out.add(std::as_bytes(std::span(images_.labels)));
  return out.text();
}

namespace {

bool has_cifar(CifarKind kind, const std::filesystem::path& directory) {
  const std::string first = cifar_files(kind, ImageSplit::kTrain).front();
  return !cifar_directory(kind, directory, first).empty();
}

// Idx is the default, because its files have no distinctive names.
ImageFormat format_of(const ImageDataConfig& config) {
  if (config.format != ImageFormat::kAuto) return config.format;
  if (has_cifar(CifarKind::kCifar10, config.path)) return ImageFormat::kCifar10;
  if (has_cifar(CifarKind::kCifar100, config.path)) return ImageFormat::kCifar100;
  return ImageFormat::kIdx;
}

Result<ImageSet> read_split(const ImageDataConfig& config, ImageSplit split, int64_t classes) {
  const int64_t limit = split == ImageSplit::kTrain ? config.train_samples : config.eval_samples;
  switch (format_of(config)) {
    case ImageFormat::kCifar10:
      return read_cifar_images(CifarKind::kCifar10, config.path, split, classes, limit);
    case ImageFormat::kCifar100:
      return read_cifar_images(CifarKind::kCifar100, config.path, split, classes, limit);
    case ImageFormat::kAuto:
    case ImageFormat::kIdx:
      break;
  }
  return read_idx_images(config.path, split, classes, limit);
}

Result<void> check_fit(const ImageDataConfig& config, const ImageShape& train, const ImageShape& eval) {
  if (eval.height != train.height || eval.width != train.width) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: training images are {} x {}, test images {} x {}; both must belong to one data set",
                            config.path, train.height, train.width, eval.height, eval.width));
  }
  if (!config.mean.empty() && static_cast<int64_t>(config.mean.size()) != train.channels) {
    return fail(ExitCode::kConfig,
                fmt::format("data.mean, data.std: {} numbers for the {} channels of {}; give one per channel",
                            config.mean.size(), train.channels, config.path));
  }
  if (config.augment.crop_padding >= std::min(train.height, train.width)) {
    return fail(ExitCode::kConfig, fmt::format("data.augment.crop_padding: {} is not below the size of the images of "
                                               "{}, {} x {}",
                                               config.augment.crop_padding, config.path, train.height, train.width));
  }
  return {};
}

}  // namespace

Result<ImageData> open_image_data(const ImageDataConfig& config, int64_t classes) {
  ASSIGN_OR_RETURN(ImageSet train, read_split(config, ImageSplit::kTrain, classes));
  ASSIGN_OR_RETURN(ImageSet eval, read_split(config, ImageSplit::kTest, classes));
  RETURN_IF_ERROR(check_fit(config, train.shape, eval.shape));
  const Normalization normalization =
      config.mean.empty() ? statistics_of(train) : Normalization{config.mean, config.std};
  ImageData data;
  data.normalization = normalization;
  data.train = std::make_unique<ImageDataset>(std::move(train), normalization, config.augment);
  data.eval = std::make_unique<ImageDataset>(std::move(eval), normalization, Augmentation{});
  return data;
}

}  // namespace oarlock::image_classification
