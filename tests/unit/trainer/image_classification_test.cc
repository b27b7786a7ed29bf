// The image task: models against PyTorch's, options, damaged data, metrics, and that it learns real Fashion-MNIST
// images.
#include "tests/support/paths.h"
#include "workloads/image_classification/task.h"

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddp/distributed_sampler.h"
#include "ddp/safetensors.h"
#include "fields/yaml_reader.h"
#include "tests/support/image_task.h"
#include "tests/support/temporary_directory.h"
#include "trainer/data/data_loader.h"
#include "workloads/image_classification/data.h"
#include "workloads/image_classification/images.h"
#include "workloads/image_classification/model.h"

namespace oarlock::image_classification {
namespace {

namespace fs = std::filesystem;
using test::all_of;
using test::shapes_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// The task of these two sections, and the problems with them.
struct Made {
  std::unique_ptr<Task> task;
  std::string problems;
};

Made make_task(const std::string& data, const std::string& model = "{}") {
  yaml::Problems problems("test.yaml");
  const auto documents = yaml::parse_all("{data: " + data + ", model: " + model + "}", "test.yaml");
  YamlFieldsReader root(documents->front(), "", problems);
  Made made;
  made.task = image_classification::make_task(root);
  root.finish();
  if (!problems.empty()) made.problems = problems.to_error().message;
  return made;
}

std::unique_ptr<Task> prepared(const std::string& data, const std::string& model = "{}") {
  Made made = make_task(data, model);
  EXPECT_EQ(made.problems, "");
  const auto result = made.task->prepare();
  EXPECT_TRUE(result) << result.error().message;
  return std::move(made.task);
}

using Shape = std::vector<int64_t>;

// A TorchScript module and the networks without batch normalization cannot use ddp.sync_batch_norm, which is rejected.
TEST(ImageOptions, NamesSettingsThatTheModelDoesNotUse) {
  const std::pair<const char*, bool> models[] = {{"{name: resnet_like}", true},
                                                 {"{name: resnet18}", true},
                                                 {"{name: cnn}", false},
                                                 {"{name: mlp}", false},
                                                 {"{name: torchscript, path: model.pt}", false}};
  for (const auto& [model, uses_batch_norm] : models) {
    SCOPED_TRACE(model);
    const Made made = make_task("{path: data}", model);
    EXPECT_EQ(made.problems, "");
    std::set<std::string> keys;
    for (const UnusedSetting& unused : made.task->unused_settings()) keys.insert(unused.key);
    EXPECT_EQ(keys.contains("ddp.sync_batch_norm"), !uses_batch_norm);
    EXPECT_TRUE(keys.contains("eval.rows_file"));
  }
}

TEST(ImageOptions, DefaultsAreGood) {
  EXPECT_EQ(make_task("{}").problems, "");
  EXPECT_EQ(make_task("{path: /x, train_samples: 5, eval_samples: 6, mean: [0.3], std: [0.3], augment: {crop_padding: "
                      "1, flip: true}}",
                      "{name: mlp, classes: 20, hidden: [4, 5, 6]}")
                .problems,
            "");
  EXPECT_EQ(make_task("{}", "{name: cnn, channels: [4, 8], hidden: []}").problems, "");
}

TEST(ImageOptions, ProblemsNamePlaceAndRemedy) {
  EXPECT_THAT(make_task("{pth: /x}").problems, AllOf(HasSubstr("test.yaml:1:9: data"), HasSubstr("path")));
  EXPECT_THAT(make_task("{path: ''}").problems, HasSubstr("data.path: must not be empty"));
  EXPECT_THAT(make_task("{train_samples: -1}").problems,
              HasSubstr("data.train_samples: -1 is not in [0, 1000000000000]"));
  EXPECT_THAT(make_task("{mean: [0.5]}").problems, HasSubstr("mean and std belong together"));
  EXPECT_THAT(make_task("{mean: [0.5], std: [0]}").problems, HasSubstr("data.std: element 0: 0 is not above 0"));
  EXPECT_THAT(make_task("{}", "{name: cnm}").problems, AllOf(HasSubstr("model.name"), HasSubstr("cnn")));
  EXPECT_THAT(make_task("{}", "{clases: 10}").problems, HasSubstr("classes"));
  EXPECT_THAT(make_task("{}", "{classes: 1}").problems, HasSubstr("model.classes: 1 is not in [2, 256]"));
  EXPECT_THAT(make_task("{}", "{channels: [8]}").problems, HasSubstr("expected two: of conv1 and conv2"));
  EXPECT_THAT(make_task("{}", "{name: mlp, channels: [8, 8]}").problems, HasSubstr("only the model cnn has channels"));
  EXPECT_THAT(make_task("{}", "{name: mlp, activation_checkpointing: true}").problems,
              HasSubstr("belongs to the model cnn"));
  EXPECT_THAT(make_task("{}", "{name: resnet_like, stem: cifar}").problems, HasSubstr("model.stem: belongs to"));
  EXPECT_THAT(make_task("{}", "{width: 8}").problems, HasSubstr("model.width: belongs to the models resnet_like"));
  EXPECT_THAT(make_task("{}", "{name: resnet18, stem: large}").problems, HasSubstr("model.stem"));
  EXPECT_THAT(make_task("{augment: {crop_padding: -1}}").problems, HasSubstr("data.augment.crop_padding: -1"));
  EXPECT_THAT(
      make_task("{}", "{name: torchscript, hidden: [3]}").problems,
      AllOf(HasSubstr("model.path: is required by the model torchscript"), HasSubstr("model.hidden: belongs to")));
  EXPECT_THAT(make_task("{}", "{hidden: [0]}").problems, HasSubstr("model.hidden: element 0: 0 is not in [1, 65536]"));
}

// A data set of `count` images of height x width; image i is filled with i, its label is i % 3.
class IdxDirectory {
 public:
  explicit IdxDirectory(uint8_t count = 6, uint8_t height = 4, uint8_t width = 5) {
    for (const std::string split : {"train", "t10k"}) write(split, count, count, height, width);
  }
  void write(const std::string& split, uint8_t images, uint8_t labels, uint8_t height, uint8_t width) const {
    std::string text{0, 0, 8, 3,
                     0, 0, 0, static_cast<char>(images),
                     0, 0, 0, static_cast<char>(height),
                     0, 0, 0, static_cast<char>(width)};
    for (uint8_t i = 0; i < images; ++i) text.append(static_cast<size_t>(height) * width, static_cast<char>(i));
    std::ofstream(path() / (split + "-images-idx3-ubyte"), std::ios::binary) << text;
    text = {0, 0, 8, 1, 0, 0, 0, static_cast<char>(labels)};
    for (uint8_t i = 0; i < labels; ++i) text.push_back(static_cast<char>(i % 3));
    std::ofstream(path() / (split + "-labels-idx1-ubyte"), std::ios::binary) << text;
  }
  const fs::path& path() const { return directory_.path(); }
  std::string section(const std::string& more = "") const { return "{path: " + path().string() + more + "}"; }

 private:
  test::TemporaryDirectory directory_;
};

Error prepare_error(const std::string& data, const std::string& model = "{}") {
  const auto result = make_task(data, model).task->prepare();
  EXPECT_FALSE(result);
  return result ? Error{} : result.error();
}

TEST(ImageData, ProblemsNameFileAndRemedy) {
  Error error = prepare_error("{path: /nonexistent}");
  EXPECT_EQ(error.code, ExitCode::kNoInput);
  EXPECT_THAT(error.message, AllOf(HasSubstr("/nonexistent: no train-images-idx3-ubyte"),
                                   HasSubstr("apt-get install dataset-fashion-mnist"), HasSubstr("data.path")));
  {
    const IdxDirectory directory;
    fs::remove(directory.path() / "t10k-labels-idx1-ubyte");
    error = prepare_error(directory.section());
    EXPECT_EQ(error.code, ExitCode::kNoInput);
    EXPECT_THAT(error.message, HasSubstr("no t10k-labels-idx1-ubyte"));
  }
  {
    const IdxDirectory directory;
    fs::resize_file(directory.path() / "train-images-idx3-ubyte", 100);
    error = prepare_error(directory.section());
    EXPECT_EQ(error.code, ExitCode::kDataErr);
    EXPECT_THAT(error.message, HasSubstr("train-images-idx3-ubyte: expected 120 bytes of elements, found 84"));
  }
  {
    const IdxDirectory directory;
    directory.write("t10k", 6, 5, 4, 5);
    error = prepare_error(directory.section());
    EXPECT_EQ(error.code, ExitCode::kDataErr);
    EXPECT_THAT(error.message, HasSubstr("t10k-labels-idx1-ubyte: expected 6 labels"));
  }
  {
    const IdxDirectory directory;
    error = prepare_error(directory.section(), "{classes: 2}");
    EXPECT_EQ(error.code, ExitCode::kDataErr);
    EXPECT_THAT(error.message,
                HasSubstr("train-labels-idx1-ubyte: label 2 of sample 2 is not below model.classes (2)"));
  }
  {
    const IdxDirectory directory;
    directory.write("t10k", 6, 6, 5, 5);
    EXPECT_THAT(prepare_error(directory.section()).message, HasSubstr("training images are 4 x 5, test images 5 x 5"));
  }
  {
    const IdxDirectory directory(6, 3, 3);
    EXPECT_THAT(prepare_error(directory.section()).message, HasSubstr("the model cnn needs at least 4 x 4: use mlp"));
    EXPECT_TRUE(make_task(directory.section(), "{name: mlp}").task->prepare());
  }
}

TEST(ImageData, BatchesAreNormalizedAndInOrder) {
  const IdxDirectory directory;
  const auto task = prepared(directory.section(", mean: [0.5], std: [0.25], eval_samples: 4"));
  EXPECT_EQ(task->train_data().size(), 6);
  EXPECT_EQ(task->eval_data().size(), 4);
  const std::vector<int64_t> indices{5, 0, 5};
  const Batch batch = make_batch(task->train_data(), indices);
  EXPECT_EQ(batch.ids, indices);
  EXPECT_EQ(batch["image"].sizes(), at::IntArrayRef({3, 1, 4, 5}));
  EXPECT_EQ(batch["image"].scalar_type(), at::kFloat);
  for (int64_t i = 0; i < 3; ++i) {
    const double expected = (static_cast<double>(indices[static_cast<size_t>(i)]) / 255 - 0.5) / 0.25;
    EXPECT_FLOAT_EQ(batch["image"][i].min().item<float>(), static_cast<float>(expected));
    EXPECT_FLOAT_EQ(batch["image"][i].max().item<float>(), static_cast<float>(expected));
    EXPECT_EQ(batch["label"][i].item<int64_t>(), indices[static_cast<size_t>(i)] % 3);
  }
}

// Mean and deviation known of Fashion-MNIST: 0.2860 and 0.3530.
TEST(ImageData, FashionMnistHasZeroMeanAndUnitVariance) {
  const auto images = read_idx_images("/usr/share/datasets/fashion-mnist", ImageSplit::kTrain, 10, 0);
  ASSERT_TRUE(images) << images.error().message;
  EXPECT_EQ(images->size(), 60000);
  EXPECT_THAT(statistics_of(*images).mean, ElementsAre(testing::DoubleNear(0.2860, 5e-5)));
  EXPECT_THAT(statistics_of(*images).std, ElementsAre(testing::DoubleNear(0.3530, 5e-5)));
  const auto task = prepared("{}");
  EXPECT_EQ(task->eval_data().size(), 10000);
  const at::Tensor image = make_batch(task->train_data(), all_of(task->train_data()))["image"];
  EXPECT_NEAR(image.to(at::kDouble).mean().item<double>(), 0, 1e-4);
  EXPECT_NEAR(image.to(at::kDouble).std().item<double>(), 1, 1e-4);
}

// Logits are what it was made with, whatever the images.
class FixedModel final : public ImageModel {
 public:
  explicit FixedModel(at::Tensor logits) : logits_(std::move(logits)) {}
  at::Tensor forward(const at::Tensor&) override { return logits_; }

 private:
  at::Tensor logits_;
};

TEST(ImageMetrics, CountTop1AndTop5) {
  const IdxDirectory directory;
  const auto task = prepared(directory.section());
  const std::vector<int64_t> indices{0, 1, 2, 3};  // labels 0 1 2 0
  const Batch batch = make_batch(task->eval_data(), indices);
  const at::Tensor logits = torch::tensor({{9., 8., 7., 6., 5., 4., 3.},    // right
                                           {9., 8., 7., 6., 5., 4., 3.},    // second
                                           {9., 8., 0., 6., 5., 4., 3.},    // last: not among five
                                           {5., 6., 7., 8., 9., 0., 0.}});  // fifth
  FixedModel model(logits);
  MetricSums sums = task->eval_step(model, batch).sums;
  EXPECT_EQ(sums.at("top1"), 1);
  EXPECT_EQ(sums.at("top5"), 3);
  EXPECT_NEAR(sums.at("loss"), at::cross_entropy_loss(logits, batch["label"], {}, at::Reduction::Sum).item<double>(),
              1e-5);
  sums["count"] = 4;
  const Metrics metrics = task->metrics(sums, {});
  EXPECT_THAT(metrics, ElementsAre(Pair("accuracy", 0.25), Pair("loss", sums.at("loss") / 4), Pair("top5", 0.75)));
  EXPECT_THAT(task->metric_names(), testing::UnorderedElementsAre("accuracy", "loss", "top5"));

  FixedModel few(torch::tensor({{1., 2.}, {1., 2.}, {1., 2.}, {1., 2.}}));  // fewer classes than five
  Batch binary = batch;
  binary.tensors["label"] = torch::tensor({0, 1, 0, 1});
  EXPECT_EQ(task->eval_step(few, binary).sums.at("top5"), 4);
}

struct Trained {
  std::shared_ptr<torch::nn::Module> model;
  Metrics metrics;  // on the training images
};

Trained train(Task& task, int64_t epochs, int loader_threads) {
  torch::manual_seed(3);
  Trained result{.model = task.build_model(), .metrics = {}};
  torch::optim::AdamW optimizer(result.model->parameters(), torch::optim::AdamWOptions(2e-3));
  const auto sampler = DistributedSampler::create({.size = task.train_data().size(), .seed = 3});
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    DataLoader loader(task.train_data(), sampler->indices(epoch), {.batch_size = 32, .threads = loader_threads});
    while (const auto batch = loader.next()) {
      optimizer.zero_grad();
      task.train_step(*result.model, *batch, {}).backward();
      optimizer.step();
    }
  }
  result.model->eval();
  const torch::NoGradGuard no_grad;
  MetricSums totals;
  DataLoader loader(task.train_data(), all_of(task.train_data()), {.batch_size = 100, .threads = loader_threads});
  while (const auto batch = loader.next()) {
    for (const auto& [name, sum] : task.eval_step(*result.model, *batch).sums) totals[name] += sum;
    totals["count"] += static_cast<double>(batch->size());
  }
  result.metrics = task.metrics(totals, {});
  return result;
}

TEST(ImageTraining, OverfitsRealImages) {
  at::set_num_threads(1);
  const auto task = prepared("{train_samples: 512}");
  const Trained cnn = train(*task, /*epochs=*/50, /*loader_threads=*/1);
  EXPECT_EQ(cnn.metrics.at("accuracy"), 1) << "loss " << cnn.metrics.at("loss");
  EXPECT_LT(cnn.metrics.at("loss"), 0.05);
}

TEST(ImageTraining, IsTheSameEveryTime) {
  at::set_num_threads(1);
  for (const std::string model : {"{name: cnn}", "{name: mlp}"}) {
    const auto task = prepared("{train_samples: 256}", model);
    const Trained first = train(*task, 2, /*loader_threads=*/0);
    const Trained second = train(*task, 2, /*loader_threads=*/3);
    const auto parameters = first.model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) EXPECT_TRUE(at::equal(parameters[i], second.model->parameters()[i]));
    EXPECT_EQ(first.metrics, second.metrics);
  }
}

// The script has three classes and takes images of any size from 5 x 5 on.
TEST(ImageScript, TrainsUnderItsOwnNames) {
  const IdxDirectory directory(6, 9, 9);
  const auto task = prepared(directory.section(),
                             "{name: torchscript, classes: 3, path: " + test::data_path("script_model.pt") + "}");
  const auto model = task->build_model();
  EXPECT_THAT(shapes_of(*model), testing::Contains(Pair("features.0.weight", Shape{4, 1, 3, 3})));
  const std::vector<int64_t> all{0, 1, 2, 3, 4, 5};
  const Batch batch = make_batch(task->train_data(), all);
  task->train_step(*model, batch, {}).backward();
  EXPECT_TRUE(model->named_parameters()["head.weight"].grad().defined());
  EXPECT_FALSE(model->named_parameters()["scale"].grad().defined());
  model->eval();
  EXPECT_EQ(task->eval_step(*model, batch).sums.size(), 3U);
}

TEST(ImageScript, AScriptForOtherDataIsFoundBeforeTraining) {
  const auto error_of = [](const IdxDirectory& directory, const std::string& classes) {
    Made made = make_task(directory.section(), "{name: torchscript, classes: " + classes +
                                                   ", path: " + test::data_path("script_model.pt") + "}");
    EXPECT_EQ(made.problems, "");
    const Result<void> result = made.task->prepare();
    return result ? Error{} : result.error();
  };
  const Error classes = error_of(IdxDirectory(6, 9, 9), "5");
  EXPECT_EQ(classes.code, ExitCode::kConfig);
  EXPECT_THAT(classes.message,
              HasSubstr("returns logits of shape [1, 3] for images of shape [1, 1, 9, 9], expected [1, 5]"));
  const Error small = error_of(IdxDirectory(6, 2, 2), "3");
  EXPECT_EQ(small.code, ExitCode::kConfig);
  EXPECT_THAT(small.message, HasSubstr("rejects images of shape [1, 1, 2, 2] in evaluation mode: "));
}

}  // namespace
}  // namespace oarlock::image_classification
