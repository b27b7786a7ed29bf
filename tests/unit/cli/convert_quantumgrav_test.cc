// The YAML of QuantumGrav's guide as a TrainingJob: the counterpart of each key, and the keys without one.
#include "cli/convert/converters.h"
#include "tests/support/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oarlock::convert {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::ordered_json;

const QuantumGravOptions kOptions = {.image = "image", .data = {"a.zarr", "b.h5"}};

Result<Converted> convert(const std::string& text, const QuantumGravOptions& options = kOptions) {
  return convert_quantumgrav(yaml::parse_all(text, "train.yaml")->front(), "train.yaml", options);
}

Json trainer_of(const std::string& text) {
  const Result<Converted> converted = convert(text);
  EXPECT_TRUE(converted) << converted.error().message;
  return converted ? converted->job["spec"]["trainer"] : Json();
}

std::string config_problems_of(const std::string& text, const QuantumGravOptions& options = kOptions) {
  const Result<Converted> converted = convert(text, options);
  EXPECT_FALSE(converted);
  EXPECT_TRUE(converted || converted.error().code == ExitCode::kConfig);
  return converted ? "" : converted.error().message;
}

TEST(ConvertQuantumGrav, ConvertsEveryKeyOfTheGuide) {
  const auto documents = yaml::load_all(test::source_path("examples/causal_set/train_ddp.yaml"));
  ASSERT_TRUE(documents) << documents.error().message;
  const Result<Converted> converted = convert_quantumgrav(documents->front(), "train_ddp.yaml", kOptions);
  ASSERT_TRUE(converted) << converted.error().message;
  const Json& spec = converted->job["spec"];
  EXPECT_EQ(spec["nodes"], 1);
  EXPECT_EQ(spec["processesPerNode"], 3);
  EXPECT_EQ(spec["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 3);
  const Json expected = Json::parse(R"({
    "task": "causal_set", "seed": 42, "epochs": 50, "device": "cuda",
    "batch": {"size": 64, "drop_last": true},
    "loader": {"threads": 4, "pin_memory": true, "prefetch": 2},
    "checkpoint": {"dir": "/path/to/output/directory", "every_epochs": 10},
    "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.00005},
    "data": {"paths": ["a.zarr", "b.h5"]},
    "ddp": {"find_unused_parameters": false},
    "eval": {"batch_size": 64}, "testing": {"batch_size": 64},
    "early_stopping": {"patience": 5}})");
  EXPECT_EQ(nlohmann::json(spec["trainer"]), nlohmann::json(expected)) << spec["trainer"].dump(1);
  EXPECT_THAT(converted->notes, Contains(AllOf(HasSubstr("train_ddp.yaml:2:12: note: criterion: "),
                                               HasSubstr("'compute_loss' is a custom function"))));
  EXPECT_THAT(converted->notes, Contains(HasSubstr("parallel.master_port: the launcher or the operator sets it")));
  EXPECT_THAT(converted->notes, Contains(HasSubstr("model.type: the network of QuantumGrav's documentation")));
}

constexpr char kParallel[] = "parallel: {world_size: 2}\n";

TEST(ConvertQuantumGrav, ConvertsTypesAndArguments) {
  const Json trainer = trainer_of(std::string(kParallel) +
                                  "criterion: !pyobject torch.nn.MSELoss\n"
                                  "training:\n"
                                  "  optimizer_type: !pyobject torch.optim.SGD\n"
                                  "  optimizer_kwargs: {lr: 0.1, momentum: 0.9}\n"
                                  "  lr_scheduler_type: !pyobject torch.optim.lr_scheduler.StepLR\n"
                                  "  lr_scheduler_kwargs: {step_size: 10, gamma: 0.5}\n");
  EXPECT_EQ(trainer["optimizer"], Json::parse(R"({"lr": 0.1, "momentum": 0.9, "name": "sgd"})"));
  EXPECT_EQ(trainer["schedule"],
            Json::parse(R"({"gamma": 0.5, "step_size": 10, "name": "step", "interval": "epoch"})"));
  EXPECT_EQ(trainer["model"]["tasks"][0]["loss"], "mse");
}

TEST(ConvertQuantumGrav, ConvertsEarlyStoppingOfSeveralTasks) {
  const Json trainer = trainer_of(std::string(kParallel) +
                                  "early_stopping:\n  type: !pyobject QuantumGrav.DefaultEarlyStopping\n  kwargs:\n"
                                  "    patience: 4\n    mode: any\n    tasks:\n"
                                  "      0: {metric: manifold_like_f1, mode: max, delta: 0.01, grace_period: 3}\n"
                                  "      1: {metric: loss, mode: min, init_best_score: 9.5}\n");
  EXPECT_EQ(trainer["early_stopping"], Json::parse(R"({"patience": 4, "aggregate": "any", "metrics": [
      {"name": "manifold_like_f1", "mode": "max", "min_delta": 0.01, "grace_period": 3},
      {"name": "loss", "mode": "min", "init_best_score": 9.5}]})"));
}

TEST(ConvertQuantumGrav, AcceptsModelAndDataOfTheTrainer) {
  const QuantumGravOptions options = {.image = "image", .data = {}};
  const Result<Converted> converted = convert(
      std::string(kParallel) + "data: {files: [x.zarr], edges: relations}\nmodel: {pooling: [mean, max]}\n", options);
  ASSERT_TRUE(converted) << converted.error().message;
  const Json& trainer = converted->job["spec"]["trainer"];
  EXPECT_EQ(trainer["data"], Json::parse(R"({"edges": "relations", "paths": ["x.zarr"]})"));
  EXPECT_EQ(trainer["model"], Json::parse(R"({"pooling": ["mean", "max"]})"));
  EXPECT_THAT(converted->notes, IsEmpty());
}

TEST(ConvertQuantumGrav, ReportsUnsupportedKeysWithPosition) {
  EXPECT_THAT(config_problems_of("training: {seed: 1}\n"), HasSubstr("must have a section 'parallel'"));
  const std::string problems = config_problems_of(std::string(kParallel) +
                                                  "training:\n"
                                                  "  optimiser_type: x\n"
                                                  "  optimizer_type: !pyobject torch.optim.LBFGS\n"
                                                  "  optimizer_args: [0.1]\n"
                                                  "  device: tpu\n"
                                                  "early_stopping: {type: MyStopping}\n");
  EXPECT_THAT(problems, HasSubstr("train.yaml:3:3: training.optimiser_type: "));
  EXPECT_THAT(problems, HasSubstr("did you mean 'optimizer_type'?"));
  EXPECT_THAT(problems, HasSubstr("'LBFGS' is not supported; Adam, AdamW and SGD are"));
  EXPECT_THAT(problems, HasSubstr("train.yaml:5:19: training.optimizer_args: "));
  EXPECT_THAT(problems, HasSubstr("training.device: is neither cuda nor cpu"));
  EXPECT_THAT(problems, HasSubstr("'MyStopping' is not supported; DefaultEarlyStopping is"));
  EXPECT_THAT(config_problems_of(kParallel, {.image = "image", .data = {}}), HasSubstr("--data"));
}

}  // namespace
}  // namespace oarlock::convert
