#include "trainer/tasks/image_classification/data_config.h"

namespace oarlock {
namespace {

constexpr int64_t kMaxPadding = 1024;

void describe(Augmentation& augment, Fields& fields) {
  fields.field("crop_padding", augment.crop_padding, from_to(0, kMaxPadding),
               "pixels of black around an image, of which a part of the image's size is cut at random; "
               "torchvision's RandomCrop(size, padding)");
  fields.field("flip", augment.flip, "mirror every other image, left to right; torchvision's RandomHorizontalFlip");
}

}  // namespace

void describe(ImageDataConfig& config, Fields& fields) {
  fields.choice<ImageFormat>("format", config.format,
                             {{"auto", ImageFormat::kAuto},
                              {"idx", ImageFormat::kIdx},
                              {"cifar10", ImageFormat::kCifar10},
                              {"cifar100", ImageFormat::kCifar100}},
                             "of the files. auto: as the folder has; idx: MNIST, Fashion-MNIST; cifar10, cifar100: "
                             "their binary versions");
  fields.field("path", config.path, "folder of the files");
  fields.field("train_samples", config.train_samples, at_least(0), "the first so many of the training set; 0: all");
  fields.field("eval_samples", config.eval_samples, at_least(0), "the first so many of the test set; 0: all");
  fields.field("mean", config.mean, any_number(),
               "of each channel's pixels, scaled to 0..1; default: of the training images");
  fields.field("std", config.std, above(0), "their standard deviations");
  fields.section(
      "augment", [&config](Fields& augment) { describe(config.augment, augment); },
      "what happens to training images, anew in every epoch; the same to an image whatever the world size");
  if (config.path.empty()) fields.problem("path", "must not be empty");
  if (config.mean.size() != config.std.size()) {
    fields.problem(config.mean.empty() ? "std" : "mean",
                   "mean and std belong together: give both as many numbers, one for each channel, or none");
  }
}

}  // namespace oarlock
