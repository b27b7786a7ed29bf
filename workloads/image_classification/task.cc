#include "workloads/image_classification/task.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
#include "ddp/script_model.h"
#include "trainer/data/fingerprint.h"
#include "workloads/image_classification/data.h"
#include "workloads/image_classification/model.h"

namespace oarlock::image_classification {

namespace {

constexpr int64_t kShownImages = 32;

// Counts the samples whose label is among the k largest logits.
double count_top_k(const at::Tensor& logits, const at::Tensor& labels, int64_t k) {
  const at::Tensor best = std::get<1>(logits.topk(std::min(k, logits.size(1)), 1));
  return best.eq(labels.unsqueeze(1)).sum().item<double>();
}

// Returns the message of an error of a script in one line: the last one, after a trace of the script.
std::string script_message(const std::exception& error) {
  const auto* library = dynamic_cast<const c10::Error*>(&error);
  std::string text = library != nullptr ? library->what_without_backtrace() : error.what();
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

// Restores the buffers of a module when it is destroyed.
class KeptBuffers {
 public:
  explicit KeptBuffers(torch::nn::Module& module) : buffers_(module.buffers()) {
    for (const at::Tensor& buffer : buffers_) copies_.push_back(buffer.clone());
  }
  ~KeptBuffers() {
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> copies_;
};

// Returns a grid of images [n, channels, height, width] in rows of eight, as RGB values from 0 to 255 [height, width,
// 3]. The contrast of each image is stretched. The frame of an image is green if `right` [n] is true, otherwise red.
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

// Returns a table in Markdown with the predicted class and the label of each image, both int64 [n].
std::string prediction_table(const at::Tensor& predicted, const at::Tensor& labels) {
  std::string out = "| image | predicted | label |\n|---:|---:|---:|\n";
  for (int64_t i = 0; i < predicted.size(0); ++i)
    out += fmt::format("| {} | {} | {} |\n", i, predicted[i].item<int64_t>(), labels[i].item<int64_t>());
  return out;
}

class ImageClassification final : public Task {
 public:
  explicit ImageClassification(Fields& root) {
    root.section(
        "data", [&](Fields& data) { describe(data_, data); }, "files of MNIST, Fashion-MNIST, CIFAR-10 or CIFAR-100");
    root.section("model", [&](Fields& model) { describe(model_, model); }, "the network");
  }

  Result<void> prepare() override {
    ASSIGN_OR_RETURN(ImageData data, open_image_data(data_, model_.classes));
    images_ = std::move(data);
    const ImageShape& shape = images_.train->shape();
    RETURN_IF_ERROR(load_script(shape));
    if (model_.kind == ImageModelKind::kCnn && std::min(shape.height, shape.width) < 4) {
      return fail(ExitCode::kDataErr, fmt::format("{}: images are {} x {}; the model cnn needs at least 4 x 4: use mlp",
                                                  data_.path, shape.height, shape.width));
    }
    return {};
  }

  const Dataset& train_data() const override { return *images_.train; }
  const Dataset& eval_data() const override { return *images_.eval; }
  std::map<std::string, std::string> fingerprints() const override {
    if (!script_) return {};
    FingerprintBuilder script;
    script.add(std::string_view(read_file(model_.path).value_or("")));
    return {{"script", script.text()}};
  }

  std::shared_ptr<torch::nn::Module> build_model() override {
    if (script_) return script_;
    return make_image_model(model_, images_.train->shape());
  }

  at::Tensor train_step(torch::nn::Module& model, const Batch& batch, const StepContext&) override {
    return at::cross_entropy_loss(forward(model, batch), batch["label"]);
  }

  EvalOutput eval_step(torch::nn::Module& model, const Batch& batch) override {
    const at::Tensor logits = forward(model, batch);
    const at::Tensor& labels = batch["label"];
    // Summed in double precision, so that the total does not depend on the distribution of samples over batches.
    const at::Tensor losses = at::cross_entropy_loss(logits, labels, {}, at::Reduction::None);
    return {.sums = {{"loss", losses.to(at::kDouble).sum().item<double>()},
                     {"top1", count_top_k(logits, labels, 1)},
                     {"top5", count_top_k(logits, labels, 5)}},
            .rows = {}};
  }

  Metrics metrics(const MetricSums& totals, const EvalRows& /*rows*/) const override {
    const double count = totals.at("count");
    return {{"loss", totals.at("loss") / count},
            {"accuracy", totals.at("top1") / count},
            {"top5", totals.at("top5") / count}};
  }

  std::vector<std::string> metric_names() const override { return {"loss", "accuracy", "top5"}; }

  std::string graph_obstacle() const override {
    return model_.activation_checkpointing
               ? "model.activation_checkpointing runs a backward pass inside the backward pass"
               : "";
  }

  std::string inference_settings() const override {
    return nlohmann::json{{"input", "pixels / 255, then (x - mean) / std for each channel"},
                          {"mean", images_.normalization.mean},
                          {"std", images_.normalization.std},
                          {"classes", model_.classes}}
        .dump();
  }

  std::vector<UnusedSetting> unused_settings() const override {
    std::vector<UnusedSetting> unused{{"eval.rows_file", "its evaluation returns no values per sample"}};
    if (model_.kind == ImageModelKind::kTorchScript)
      unused.push_back({"ddp.sync_batch_norm", "a TorchScript module computes batch normalization by itself"});
    if (model_.kind == ImageModelKind::kCnn || model_.kind == ImageModelKind::kMlp)
      unused.push_back({"ddp.sync_batch_norm", "the models cnn and mlp have no batch normalization"});
    return unused;
  }

  // A grid of the first images of the evaluation with green (right) or red frames, and a table of the predictions.
  PassMedia show(torch::nn::Module& model, const EvalRows& /*rows*/) override {
    Batch batch;
    batch.ids.resize(static_cast<size_t>(std::min(kShownImages, images_.eval->size())));
    std::iota(batch.ids.begin(), batch.ids.end(), int64_t{0});
    images_.eval->make_batch(batch.ids, 0, batch);
    const at::Device device = model.parameters().front().device();
    Batch on_device = batch;
    for (auto& [name, tensor] : on_device.tensors) tensor = tensor.to(device);
    const at::Tensor predicted = forward(model, on_device).argmax(1).cpu();
    const at::Tensor& labels = batch["label"];
    return {.texts = {{"predictions", prediction_table(predicted, labels)}},
            .images = {{"images", prediction_grid(batch["image"], predicted.eq(labels))}}};
  }

  Monitor monitor() const override { return {.metric = "accuracy", .mode = MetricMode::kMax}; }

 private:
  static at::Tensor forward(torch::nn::Module& model, const Batch& batch) {
    if (auto* script = dynamic_cast<ScriptModel*>(&model)) return script->forward({batch["image"]});
    return dynamic_cast<ImageModel&>(model).forward(batch["image"]);
  }

  // Loads the script if the model is one, and runs it on images of this shape in both modes, so that a script for other
  // data fails before training.
  Result<void> load_script(const ImageShape& shape) {
    if (model_.kind != ImageModelKind::kTorchScript) return {};
    ASSIGN_OR_RETURN(std::shared_ptr<ScriptModel> script, ScriptModel::load(model_.path));
    const std::vector<at::Tensor> parameters = script->parameters();
    if (std::none_of(parameters.begin(), parameters.end(), [](const at::Tensor& p) { return p.requires_grad(); })) {
      return fail(ExitCode::kConfig,
                  fmt::format("{}: has no parameters that require gradients; save torch.jit.script(model) in training "
                              "mode, without torch.jit.freeze or torch.jit.optimize_for_inference",
                              model_.path));
    }
    script_ = std::move(script);
    return try_script({1, shape.channels, shape.height, shape.width}, /*trains=*/false).and_then([&] {
      // Two images, because batch normalization may need more than one.
      return try_script({2, shape.channels, shape.height, shape.width}, /*trains=*/true);
    });
  }

  Result<void> try_script(at::IntArrayRef images, bool trains) {
    const at::NoGradGuard no_gradients;
    const KeptBuffers kept(*script_);
    script_->train(trains);
    try {
      const at::Tensor logits = script_->forward({at::zeros(images)});
      script_->train();
      if (logits.sizes() == at::IntArrayRef{images[0], model_.classes}) return {};
      return fail(
          ExitCode::kConfig,
          fmt::format("{}: returns logits of shape {} for images of shape {}, expected [{}, {}] (model.classes)",
                      model_.path, c10::str(logits.sizes()), c10::str(images), images[0], model_.classes));
    } catch (const ErrorException& error) {
      return tl::make_unexpected(error.error());
    } catch (const std::exception& error) {
      return fail(ExitCode::kConfig,
                  fmt::format("{}: rejects images of shape {} in {} mode: {}", model_.path, c10::str(images),
                              trains ? "training" : "evaluation", script_message(error)));
    }
  }

  ImageDataConfig data_;
  ImageModelConfig model_;
  std::shared_ptr<ScriptModel> script_;  // null unless the model is a script
  ImageData images_;
};

}  // namespace

std::unique_ptr<Task> make_task(Fields& root) { return std::make_unique<ImageClassification>(root); }

}  // namespace oarlock::image_classification
