#include "trainer/tasks/image_classification/model_config.h"

namespace oarlock {
namespace {

constexpr int64_t kMaxClasses = 256;
constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxResnetWidth = 1024;

void describe_small(ImageModelConfig& config, Fields& fields) {
  const bool cnn = config.kind == ImageModelKind::kCnn;
  if (!fields.given("hidden")) config.hidden = cnn ? std::vector<int64_t>{128} : std::vector<int64_t>{256, 128};
  fields.field("hidden", config.hidden, from_to(1, kMaxWidth),
               "widths between input (cnn: features) and logits; cnn: [128], mlp: [256, 128]");
  fields.field("channels", config.channels, from_to(1, kMaxWidth), "cnn: of conv1 and conv2");
  fields.field("activation_checkpointing", config.activation_checkpointing,
               "cnn: run each convolution again in backward instead of keeping what it gave: less memory, more time");
  fields.only_where("hidden", cnn || config.kind == ImageModelKind::kMlp, "belongs to the models cnn and mlp");
  fields.only_where("channels", cnn, "only the model cnn has channels");
  fields.only_where("activation_checkpointing", cnn, "belongs to the model cnn");
  if (cnn && config.channels.size() != 2) fields.problem("channels", "expected two: of conv1 and conv2");
}

void describe_resnet(ImageModelConfig& config, Fields& fields) {
  const bool resnet = config.kind == ImageModelKind::kResnet18 || config.kind == ImageModelKind::kResnet50;
  fields.field("width", config.width, from_to(1, kMaxResnetWidth),
               "resnet_like, resnet18, resnet50: channels of the first stage; each next one has twice as many");
  fields.choice<ResnetStem>("stem", config.stem, {{"imagenet", ResnetStem::kImagenet}, {"cifar", ResnetStem::kCifar}},
                            "resnet18, resnet50: how it begins. imagenet: 7x7 with stride 2 and max pooling; cifar: "
                            "3x3, for images of about 32x32");
  fields.only_where("width", resnet || config.kind == ImageModelKind::kResnetLike,
                    "belongs to the models resnet_like, resnet18 and resnet50");
  fields.only_where("stem", resnet, "belongs to the models resnet18 and resnet50");
}

}  // namespace

void describe(ImageModelConfig& config, Fields& fields) {
  fields.choice<ImageModelKind>("name", config.kind,
                                {{"cnn", ImageModelKind::kCnn},
                                 {"mlp", ImageModelKind::kMlp},
                                 {"resnet_like", ImageModelKind::kResnetLike},
                                 {"resnet18", ImageModelKind::kResnet18},
                                 {"resnet50", ImageModelKind::kResnet50},
                                 {"torchscript", ImageModelKind::kTorchScript}},
                                "the network; resnet_like: 7 convolutions with batch norm and no residual additions");
  fields.field("classes", config.classes, from_to(2, kMaxClasses), "labels are 0 .. classes - 1");
  describe_small(config, fields);
  describe_resnet(config, fields);
  const bool script = config.kind == ImageModelKind::kTorchScript;
  fields.field("path", config.path, "torchscript: a file that torch.jit.script(model).save() wrote in Python");
  fields.only_where("path", script, "belongs to the model torchscript");
  if (script && config.path.empty()) fields.problem("path", "is required by the model torchscript");
}

}  // namespace oarlock
