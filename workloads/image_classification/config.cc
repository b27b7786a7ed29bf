#include "workloads/image_classification/config.h"

#include "trainer/config/limits.h"

namespace oarlock::image_classification {
namespace {

constexpr int64_t kMaxPadding = 1024;
constexpr int64_t kMaxClasses = 256;
constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxResnetWidth = 1024;

void describe_augmentation(Augmentation& augment, Fields& fields) {
  fields.field("crop_padding", augment.crop_padding, from_to(0, kMaxPadding),
               "pixels of black padding around an image, from which a crop of the image's size is taken at random; "
               "torchvision's RandomCrop(size, padding)");
  fields.field("flip", augment.flip,
               "flip images horizontally with probability 1/2; torchvision's RandomHorizontalFlip");
}

void describe_small_network(ImageModelConfig& config, Fields& fields) {
  const bool cnn = config.kind == ImageModelKind::kCnn;
  if (!fields.has("hidden")) config.hidden = cnn ? std::vector<int64_t>{128} : std::vector<int64_t>{256, 128};
  fields.field("hidden", config.hidden, from_to(1, kMaxWidth),
               "widths of the hidden layers between input (cnn: features) and logits; default: [128] for cnn, [256, "
               "128] for mlp");
  fields.field("channels", config.channels, from_to(1, kMaxWidth), "cnn: output channels of conv1 and conv2");
  fields.field("activation_checkpointing", config.activation_checkpointing,
               "cnn: recompute each convolution in the backward pass instead of keeping its output: less memory, more "
               "time");
  fields.only_if("hidden", cnn || config.kind == ImageModelKind::kMlp, "belongs to the models cnn and mlp");
  fields.only_if("channels", cnn, "only the model cnn has channels");
  fields.only_if("activation_checkpointing", cnn, "belongs to the model cnn");
  if (cnn && config.channels.size() != 2) fields.problem("channels", "expected two: of conv1 and conv2");
}

void describe_resnet(ImageModelConfig& config, Fields& fields) {
  const bool resnet = config.kind == ImageModelKind::kResnet18 || config.kind == ImageModelKind::kResnet50;
  fields.field("width", config.width, from_to(1, kMaxResnetWidth),
               "resnet_like, resnet18, resnet50: channels of the first stage; doubled in each later stage");
  fields.choice<ResnetStem>("stem", config.stem, {{"imagenet", ResnetStem::kImagenet}, {"cifar", ResnetStem::kCifar}},
                            "resnet18, resnet50: the first layers. imagenet: 7x7 with stride 2 and max pooling; cifar: "
                            "3x3, for images of about 32x32");
  fields.only_if("width", resnet || config.kind == ImageModelKind::kResnetLike,
                 "belongs to the models resnet_like, resnet18 and resnet50");
  fields.only_if("stem", resnet, "belongs to the models resnet18 and resnet50");
}

}  // namespace

void describe(ImageDataConfig& config, Fields& fields) {
  fields.choice<ImageFormat>("format", config.format,
                             {{"auto", ImageFormat::kAuto},
                              {"idx", ImageFormat::kIdx},
                              {"cifar10", ImageFormat::kCifar10},
                              {"cifar100", ImageFormat::kCifar100}},
                             "file format. auto: detected from the file names; idx: MNIST, Fashion-MNIST; cifar10, "
                             "cifar100: the binary versions of these data sets");
  fields.field("path", config.path, "directory of the files");
  fields.scope("path", Scope::kRank);
  fields.field("train_samples", config.train_samples, from_to(0, kMaxSamples),
               "number of training samples, from the first one; 0: all");
  fields.field("eval_samples", config.eval_samples, from_to(0, kMaxSamples),
               "number of test samples, from the first one; 0: all");
  fields.field("mean", config.mean, any_number(),
               "mean of each channel, for pixels scaled to 0..1; default: computed from the training images");
  fields.field("std", config.std, above(0), "standard deviation of each channel, as for mean");
  fields.section(
      "augment", [&config](Fields& augment) { describe_augmentation(config.augment, augment); },
      "random augmentation of training images, different in every epoch and independent of the world size");
  if (config.path.empty()) fields.problem("path", "must not be empty");
  if (config.mean.size() != config.std.size()) {
    fields.problem(config.mean.empty() ? "std" : "mean",
                   "mean and std belong together: give both as many numbers, one for each channel, or none");
  }
}

void describe(ImageModelConfig& config, Fields& fields) {
  fields.choice<ImageModelKind>("name", config.kind,
                                {{"cnn", ImageModelKind::kCnn},
                                 {"mlp", ImageModelKind::kMlp},
                                 {"resnet_like", ImageModelKind::kResnetLike},
                                 {"resnet18", ImageModelKind::kResnet18},
                                 {"resnet50", ImageModelKind::kResnet50},
                                 {"torchscript", ImageModelKind::kTorchScript}},
                                "the network; resnet_like: 7 convolutions with batch norm and no residual additions");
  fields.field("classes", config.classes, from_to(2, kMaxClasses), "number of classes; labels are 0 .. classes - 1");
  describe_small_network(config, fields);
  describe_resnet(config, fields);
  const bool script = config.kind == ImageModelKind::kTorchScript;
  fields.field("path", config.path, "torchscript: a file written by torch.jit.script(model).save() in Python");
  fields.scope("path", Scope::kRank);
  fields.only_if("path", script, "belongs to the model torchscript");
  if (script && config.path.empty()) fields.problem("path", "is required by the model torchscript");
}

}  // namespace oarlock::image_classification
