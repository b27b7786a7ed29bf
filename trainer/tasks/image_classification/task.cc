#include "trainer/tasks/image_classification/task.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "trainer/nn/script_model.h"
#include "trainer/tasks/image_classification/idx_images.h"
#include "trainer/tasks/image_classification/models.h"

namespace oarlock {
namespace {

constexpr char kDefaultPath[] = "/usr/share/datasets/fashion-mnist";  // Debian's dataset-fashion-mnist

// The section "data".
struct DataConfig {
  std::string path = kDefaultPath;
  int64_t train_samples = 0;   // 0: all
  int64_t eval_samples = 0;    // 0: all
  std::optional<double> mean;  // of pixels scaled to 0..1; both or none; default: those of the training images
  std::optional<double> std;
};

void describe(DataConfig& config, Fields& fields) {
  fields.field("path", config.path, "folder of the idx files");
  fields.field("train_samples", config.train_samples, at_least(0), "the first so many of the training set; 0: all");
  fields.field("eval_samples", config.eval_samples, at_least(0), "the first so many of the test set; 0: all");
  fields.field("mean", config.mean, any_number(), "of pixels scaled to 0..1; default: of the training images");
  fields.field("std", config.std, above(0), "their standard deviation");
  if (config.path.empty()) fields.problem("path", "must not be empty");
  if (config.mean.has_value() != config.std.has_value()) {
    fields.problem(config.mean ? "mean" : "std", "mean and std belong together: set both or neither");
  }
}

// Samples whose label is among the k largest logits.
double count_top_k(const at::Tensor& logits, const at::Tensor& labels, int64_t k) {
  const at::Tensor best = std::get<1>(logits.topk(std::min(k, logits.size(1)), 1));
  return best.eq(labels.unsqueeze(1)).sum().item<double>();
}

// TorchScript's own words come last, after a trace of the script.
std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

class ImageClassification final : public Task {
 public:
  explicit ImageClassification(Fields& root) {
    root.section(
        "data", [&](Fields& data) { describe(data_, data); }, "idx files, as those of MNIST and Fashion-MNIST");
    root.section("model", [&](Fields& model) { describe(model_, model); }, "a network for small images");
  }

  // The files are read as they are.
  PrepareOn prepare_on() const override { return PrepareOn::kOneRank; }
  Result<void> prepare_data(const Logger& /*log*/) override { return {}; }

  Result<void> prepare() override {
    auto train = IdxImages::open(data_.path, "train", model_.classes, data_.train_samples);
    if (!train) return tl::make_unexpected(train.error());
    auto eval = IdxImages::open(data_.path, "t10k", model_.classes, data_.eval_samples);
    if (!eval) return tl::make_unexpected(eval.error());
    if (eval->height() != train->height() || eval->width() != train->width()) {
      return fail(ExitCode::kDataErr,
                  fmt::format("{}: training images are {} x {}, test images {} x {}; both must be of one data set",
                              data_.path, train->height(), train->width(), eval->height(), eval->width()));
    }
    if (const Result<void> loaded = load_script({1, 1, train->height(), train->width()}); !loaded) return loaded;
    if (model_.kind == ImageModelKind::kCnn && std::min(train->height(), train->width()) < 4) {
      return fail(ExitCode::kDataErr, fmt::format("{}: images are {} x {}; the model cnn needs at least 4 x 4: use mlp",
                                                  data_.path, train->height(), train->width()));
    }
    const Normalization normalization =
        data_.mean ? Normalization{.mean = *data_.mean, .std = *data_.std} : train->statistics();
    train->normalize(normalization);
    eval->normalize(normalization);
    train_ = std::make_unique<IdxImages>(std::move(*train));
    eval_ = std::make_unique<IdxImages>(std::move(*eval));
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *eval_; }

  std::shared_ptr<torch::nn::Module> build_model() override {
    if (script_) return script_;
    return make_image_model(model_, {.channels = 1, .height = train_->height(), .width = train_->width()});
  }

  at::Tensor train_step(torch::nn::Module& model, const Batch& batch, const StepContext&) override {
    return at::cross_entropy_loss(forward(model, batch), batch["label"]);
  }

  EvalOutput eval_step(torch::nn::Module& model, const Batch& batch) override {
    const at::Tensor logits = forward(model, batch);
    const at::Tensor& labels = batch["label"];
    // Summed in double precision: the total must not depend on how samples fell into batches.
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

  Monitor monitor() const override { return {.metric = "accuracy", .mode = MetricMode::kMax}; }
  std::vector<EvalPass> passes() override { return {}; }

 private:
  static at::Tensor forward(torch::nn::Module& model, const Batch& batch) {
    if (auto* script = dynamic_cast<ScriptModel*>(&model)) return script->forward({batch["image"]});
    return dynamic_cast<ImageModel&>(model).forward(batch["image"]);
  }

  // Where the model is one: tries it on an image of this size, so that a script for other data does not fail later.
  Result<void> load_script(at::IntArrayRef image) {
    if (model_.kind != ImageModelKind::kTorchScript) return {};
    Result<std::shared_ptr<ScriptModel>> script = ScriptModel::load(model_.path);
    if (!script) return tl::make_unexpected(script.error());
    script_ = std::move(*script);
    const at::NoGradGuard no_gradients;
    script_->eval();
    try {
      const at::Tensor logits = script_->forward({at::zeros(image)});
      script_->train();
      if (logits.sizes() == at::IntArrayRef{1, model_.classes}) return {};
      return fail(ExitCode::kConfig,
                  fmt::format("{}: gives logits of shape {} for an image of {}, expected [1, {}] "
                              "(model.classes)",
                              model_.path, c10::str(logits.sizes()), c10::str(image), model_.classes));
    } catch (const std::exception& error) {
      return fail(ExitCode::kConfig, fmt::format("{}: cannot take an image of {}: {}", model_.path, c10::str(image),
                                                 last_line(error.what())));
    }
  }

  DataConfig data_;
  ImageModelConfig model_;
  std::shared_ptr<ScriptModel> script_;  // where the model is one
  std::unique_ptr<IdxImages> train_;
  std::unique_ptr<IdxImages> eval_;
};

}  // namespace

std::unique_ptr<Task> make_image_classification(Fields& root) { return std::make_unique<ImageClassification>(root); }

}  // namespace oarlock
