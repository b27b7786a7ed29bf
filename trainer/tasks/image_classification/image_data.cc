#include "trainer/tasks/image_classification/image_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/tasks/image_classification/cifar_images.h"
#include "trainer/tasks/image_classification/idx_images.h"

namespace oarlock {
namespace {

bool has_cifar(CifarKind kind, const std::filesystem::path& folder) {
  const std::string first = cifar_files(kind, ImageSplit::kTrain).front();
  return !cifar_folder(kind, folder, first).empty();
}

// Idx files, which have no names of their own, are what is left.
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
                fmt::format("{}: training images are {} x {}, test images {} x {}; both must be of one data set",
                            config.path, train.height, train.width, eval.height, eval.width));
  }
  if (!config.mean.empty() && static_cast<int64_t>(config.mean.size()) != train.channels) {
    return fail(ExitCode::kConfig,
                fmt::format("data.mean, data.std: {} numbers for the {} channels of {}; give one for each channel",
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
  Result<ImageSet> train = read_split(config, ImageSplit::kTrain, classes);
  if (!train) return tl::make_unexpected(train.error());
  Result<ImageSet> eval = read_split(config, ImageSplit::kTest, classes);
  if (!eval) return tl::make_unexpected(eval.error());
  if (const Result<void> fit = check_fit(config, train->shape, eval->shape); !fit)
    return tl::make_unexpected(fit.error());
  const Normalization normalization =
      config.mean.empty() ? statistics_of(*train) : Normalization{config.mean, config.std};
  ImageData data;
  data.train = std::make_unique<ImageDataset>(std::move(*train), normalization, config.augment);
  data.eval = std::make_unique<ImageDataset>(std::move(*eval), normalization, Augmentation{});
  return data;
}

}  // namespace oarlock
