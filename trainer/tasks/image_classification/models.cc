#include "trainer/tasks/image_classification/models.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "trainer/nn/checkpointed.h"

namespace oarlock {
namespace {

constexpr int64_t kMaxClasses = 256;
constexpr int64_t kMaxWidth = 65536;

// fc1 ... fcN with ReLU between them, registered with the module they belong to.
class FullyConnected {
 public:
  FullyConnected(torch::nn::Module& owner, int64_t inputs, const std::vector<int64_t>& hidden, int64_t outputs) {
    std::vector<int64_t> widths = hidden;
    widths.push_back(outputs);
    for (const int64_t width : widths) {
      layers_.push_back(
          owner.register_module(fmt::format("fc{}", layers_.size() + 1), torch::nn::Linear(inputs, width)));
      inputs = width;
    }
  }

  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i]->forward(i == 0 ? x : at::relu(x));
    return x;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

// Max pooling is eight times as fast in this layout on the CPU. With one channel both layouts have the same bytes, and
// only strides say which is meant.
at::Tensor channels_last(const at::Tensor& images) {
  if (images.size(1) != 1) return images.contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t width = images.size(3);
  return images.contiguous().as_strided(images.sizes(), {images.size(2) * width, 1, width, 1});
}

class Cnn final : public ImageModel {
 public:
  Cnn(const ImageModelConfig& config, const ImageShape& shape)
      : checkpoint_(config.activation_checkpointing),
        conv1_(register_conv("conv1", shape.channels, config.channels[0])),
        conv2_(register_conv("conv2", config.channels[0], config.channels[1])),
        head_(*this, config.channels[1] * (shape.height / 4) * (shape.width / 4), config.hidden, config.classes) {
    // The gradient of a one-channel weight comes with these strides, and DDP's buckets take theirs from the parameter.
    if (shape.channels == 1) conv1_->weight.set_data(channels_last(conv1_->weight.detach()));
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x = run_stage(*conv2_, run_stage(*conv1_, channels_last(images)));
    return head_.forward(x.flatten(1));
  }

 private:
  at::Tensor run_stage(torch::nn::Conv2dImpl& conv, const at::Tensor& x) const {
    // Pooling first leaves ReLU a quarter of the work; the result is the same.
    const auto stage = [&conv](const at::Tensor& in) { return at::relu(at::max_pool2d(conv.forward(in), 2)); };
    return checkpoint_ ? checkpointed(conv, stage, x, /*preserve_random_state=*/false) : stage(x);
  }

  torch::nn::Conv2d register_conv(const char* name, int64_t in, int64_t out) {
    return register_module(name, torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)));
  }

  bool checkpoint_;
  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  FullyConnected head_;
};

class Mlp final : public ImageModel {
 public:
  Mlp(const ImageModelConfig& config, const ImageShape& shape)
      : layers_(*this, shape.channels * shape.height * shape.width, config.hidden, config.classes) {}

  at::Tensor forward(const at::Tensor& images) override { return layers_.forward(images.flatten(1)); }

 private:
  FullyConnected layers_;
};

}  // namespace

void describe(ImageModelConfig& config, Fields& fields) {
  fields.choice<ImageModelKind>(
      "name", config.kind,
      {{"cnn", ImageModelKind::kCnn}, {"mlp", ImageModelKind::kMlp}, {"torchscript", ImageModelKind::kTorchScript}},
      "the network");
  const bool script = config.kind == ImageModelKind::kTorchScript;
  const bool cnn = config.kind == ImageModelKind::kCnn;
  fields.field("classes", config.classes, from_to(2, kMaxClasses), "labels are 0 .. classes - 1");
  if (!fields.given("hidden")) config.hidden = cnn ? std::vector<int64_t>{128} : std::vector<int64_t>{256, 128};
  fields.field("hidden", config.hidden, from_to(1, kMaxWidth),
               "widths between input (cnn: features) and logits; cnn: [128], mlp: [256, 128]");
  fields.field("channels", config.channels, from_to(1, kMaxWidth), "cnn: of conv1 and conv2");
  fields.field("activation_checkpointing", config.activation_checkpointing,
               "cnn: run each convolution again in backward instead of keeping what it gave: less memory, more time");
  fields.field("path", config.path, "torchscript: a file that torch.jit.script(model).save() wrote in Python");
  fields.only_where("hidden", !script, "belongs to the models cnn and mlp; a script has its own layers");
  fields.only_where("channels", cnn, "only the model cnn has channels");
  fields.only_where("activation_checkpointing", cnn, "belongs to the model cnn");
  fields.only_where("path", script, "belongs to the model torchscript");
  if (script && config.path.empty()) fields.problem("path", "is required by the model torchscript");
  if (cnn && config.channels.size() != 2) fields.problem("channels", "expected two: of conv1 and conv2");
}

std::shared_ptr<ImageModel> make_image_model(const ImageModelConfig& config, const ImageShape& shape) {
  if (config.kind == ImageModelKind::kMlp) return std::make_shared<Mlp>(config, shape);
  return std::make_shared<Cnn>(config, shape);
}

}  // namespace oarlock
