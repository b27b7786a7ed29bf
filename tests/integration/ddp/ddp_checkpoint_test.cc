// save_checkpoint() and load_checkpoint() on two ranks: training that is stopped and continued has the bits of training
// that was not interrupted, and a file that does not fit is one error on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.h"
#include "tests/support/rank_harness.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kSamples = 40;
constexpr int64_t kBatch = 4;  // per rank, so that an epoch of two ranks has five steps
constexpr int64_t kStopped = 7;
constexpr int64_t kSteps = 12;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t hidden = 8) {
    first = register_module("first", torch::nn::Linear(6, hidden));
    norm = register_module("norm", BatchNorm1d(hidden));
    second = register_module("second", torch::nn::Linear(hidden, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(norm(first(x)))); }

  torch::nn::Linear first{nullptr};
  BatchNorm1d norm{nullptr};
  torch::nn::Linear second{nullptr};
};
TORCH_MODULE(Net);

using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

template <typename Optimizer, typename Options>
OptimizerFactory factory(const Options& options) {
  return
      [options](const std::vector<at::Tensor>& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

OptimizerFactory sgd() {
  return factory<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true));
}
OptimizerFactory adam(bool amsgrad) {
  return factory<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(amsgrad));
}

// A program that trains a network, until it is stopped.
class Training {
 public:
  Training(const OptimizerFactory& make, const ProcessGroup& group, uint64_t seed) : group_(group) {
    at::manual_seed(seed);
    net_ = Net();
    model_ = std::make_unique<DistributedDataParallel<NetImpl>>(net_, group_);
    optimizer_ = make(net_->parameters());
  }

  // Trains until `steps` steps are complete. The learning rate follows a schedule.
  void train(int64_t steps) {
    const DistributedSampler sampler({.size = kSamples, .rank = group_.rank(), .world_size = group_.world_size()});
    at::manual_seed(17);
    const at::Tensor data = torch::randn({kSamples, 6});
    while (position_.step < steps) {
      std::vector<int64_t> indices = sampler.indices(position_.epoch, position_.epoch_samples);
      if (indices.empty()) {
        ++position_.epoch;
        position_.epoch_samples = 0;
        continue;
      }
      indices.resize(kBatch);
      optimizer_->zero_grad();
      model_->forward(data.index_select(0, torch::tensor(indices))).pow(2).mean().backward();
      optimizer_->step();
      auto& options = optimizer_->param_groups()[0].options();
      options.set_lr(options.get_lr() * 0.9);
      ++position_.step;
      position_.epoch_samples += kBatch * group_.world_size();
    }
  }

  void save(const std::filesystem::path& path) { save_checkpoint(path, state(), position_, group_); }
  bool load(const std::filesystem::path& path) {
    const std::optional<TrainingPosition> position = load_checkpoint(path, state(), group_);
    if (position) position_ = *position;
    return position.has_value();
  }
  // The message of the exception, or "".
  std::string load_error(const std::filesystem::path& path) {
    try {
      load(path);
    } catch (const ErrorException& error) {
      EXPECT_EQ(error.error().code, ExitCode::kDataErr);
      return error.what();
    }
    return "";
  }

  TrainingState state() { return {.module = *net_, .optimizer = optimizer_.get()}; }
  const TrainingPosition& position() const { return position_; }
  Net& net() { return net_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  const ProcessGroup& group_;
  Net net_{nullptr};
  std::unique_ptr<DistributedDataParallel<NetImpl>> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  TrainingPosition position_;
};

void expect_same_bits(const Net& actual, const Net& expected) {
  const auto tensors_of = [](const Net& net) {
    std::vector<NamedTensor> out = unique_parameters(*net);
    for (const NamedTensor& buffer : unique_buffers(*net)) out.push_back(buffer);
    return out;
  };
  EXPECT_EQ(digest_of(tensors_of(actual)), digest_of(tensors_of(expected)));
}

TEST(DdpCheckpoint, ContinuedTrainingEqualsUninterrupted) {
  const std::vector<std::pair<std::string, OptimizerFactory>> optimizers = {
      {"SGD", sgd()},
      {"SGD without momentum", factory<torch::optim::SGD>(torch::optim::SGDOptions(0.05))},
      {"Adam", adam(false)},
      {"Adam with amsgrad", adam(true)},
      {"AdamW", factory<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01))},
      {"Adagrad", factory<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.05))},
      {"RMSprop", factory<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true))},
  };
  const test::TemporaryDirectory directory;
  run_ranks(2, [&](const ProcessGroup& group) {
    for (const auto& [name, make] : optimizers) {
      SCOPED_TRACE(name);
      Training uninterrupted(make, group, 1);
      uninterrupted.train(kSteps);
      // The other rank has no file of this name, as on another host.
      const std::filesystem::path path = group.rank() == 0 ? directory.path() / name : "/no/such/directory";
      {
        Training stopped(make, group, 1);
        EXPECT_FALSE(stopped.load(path)) << "there is no file yet";
        stopped.train(kStopped);
        stopped.save(path);
      }
      Training continued(make, group, 2);
      ASSERT_TRUE(continued.load(path));
      EXPECT_EQ(continued.position(), (TrainingPosition{.step = kStopped, .epoch = 1, .epoch_samples = 16}));
      continued.train(kSteps);
      expect_same_bits(continued.net(), uninterrupted.net());
    }
  });
}

TEST(DdpCheckpoint, HasNamesForOtherPrograms) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "checkpoint.safetensors";
  run_ranks(2, [&](const ProcessGroup& group) {
    Training training(adam(false), group, 1);
    training.train(kStopped);
    training.save(path);
    if (group.rank() != 0) return;
    const auto file = read_safetensors(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->metadata,
              (SafetensorsMetadata{
                  {"format", "pt"}, {"optimizer", "Adam"}, {"step", "7"}, {"epoch", "1"}, {"epoch_samples", "16"}}));
    EXPECT_EQ(file->tensors.at("optimizer.first.weight.step").item<int64_t>(), kStopped);
    EXPECT_EQ(file->tensors.at("optimizer.first.weight.exp_avg").sizes(), at::IntArrayRef({8, 6}));
    EXPECT_TRUE(file->tensors.at("model.norm.running_mean").equal(training.net()->norm->running_mean));
    EXPECT_TRUE(file->tensors.contains("optimizer.lr"));
  });
}

TEST(DdpCheckpoint, RejectsOtherModelsAndOptimizers) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "checkpoint.safetensors";
  run_ranks(2, [&](const ProcessGroup& group) {
    Training saved(adam(false), group, 1);
    saved.train(2);
    saved.save(path);

    EXPECT_THAT(Training(sgd(), group, 2).load_error(path),
                AllOf(HasSubstr(path.string()), HasSubstr("optimizer Adam, this program's is SGD")));
    EXPECT_THAT(Training(adam(true), group, 2).load_error(path),
                AllOf(HasSubstr(path.string()), HasSubstr("has no 'optimizer.first.bias.max_exp_avg_sq'"),
                      HasSubstr("Float [8]")));

    const auto load_into = [&](torch::nn::Module& module) -> std::string {
      const std::string before = digest_of(unique_parameters(module));
      try {
        load_checkpoint(path, {.module = module}, group);
      } catch (const ErrorException& error) {
        EXPECT_EQ(error.error().code, ExitCode::kDataErr);
        EXPECT_EQ(digest_of(unique_parameters(module)), before) << "a part was loaded";
        return error.what();
      }
      return "";
    };
    Net wide(9);
    EXPECT_THAT(load_into(*wide), AllOf(HasSubstr(path.string()), HasSubstr("'model.first.bias'"),
                                        HasSubstr("Float [8]"), HasSubstr("Float [9]")));
    Net more;
    more->register_module("third", torch::nn::Linear(2, 3));
    EXPECT_THAT(load_into(*more), AllOf(HasSubstr("has no 'model.third.bias'"), HasSubstr("Float [3]")));
    torch::nn::Linear fewer(6, 8);
    EXPECT_THAT(load_into(*fewer), HasSubstr("has no 'model.bias'"));
    Net precise;
    precise->to(at::kDouble);
    EXPECT_THAT(load_into(*precise), AllOf(HasSubstr("Float [8]"), HasSubstr("Double [8]")));
    // Only one rank has another model, and all of them fail.
    Net of_rank(group.rank() == 0 ? 8 : 9);
    EXPECT_THAT(load_into(*of_rank), AllOf(HasSubstr("Float [9]"), HasSubstr("'model.first.bias'")));

    Net weights;  // for an evaluation: without the optimizer
    ASSERT_TRUE(load_checkpoint(path, {.module = *weights}, group));
    if (group.rank() == 0) expect_same_bits(weights, saved.net());  // the other rank's statistics are not saved
  });
}

TEST(DdpCheckpoint, RejectsExtraTensorsAndDamagedFiles) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "checkpoint.safetensors";
  run_ranks(2, [&](const ProcessGroup& group) {
    Training training(sgd(), group, 1);
    training.train(1);
    const at::Tensor counter = torch::full({2}, 3.0);
    save_checkpoint(path, {.module = *training.net(), .optimizer = &training.optimizer(), .tensors = {{"n", counter}}},
                    training.position(), group);
    EXPECT_THAT(training.load_error(path), AllOf(HasSubstr("has 'extra.n' of Float [2]"), HasSubstr("does not have")));
    const at::Tensor restored = torch::zeros({2});
    load_checkpoint(path, {.module = *training.net(), .tensors = {{"n", restored}}}, group);
    EXPECT_TRUE(restored.equal(counter));

    group.barrier();
    if (group.rank() == 0) std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    EXPECT_THAT(training.load_error(path), AllOf(HasSubstr(path.string()), HasSubstr("not a valid safetensors file")));
    if (group.rank() == 0) {
      EXPECT_TRUE(write_safetensors(directory.path() / "other", {{"model.x", counter}}));
    }
    EXPECT_THAT(training.load_error(directory.path() / "other"), HasSubstr("save_checkpoint() did not write it"));
  });
}

TEST(DdpCheckpoint, FailedSaveLeavesLastCheckpoint) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "checkpoint.safetensors";
  run_ranks(2, [&](const ProcessGroup& group) {
    Training training(sgd(), group, 1);
    training.train(1);
    training.save(path);
    const auto save_error = [&](const std::filesystem::path& target, const TrainingState& state) -> Error {
      try {
        save_checkpoint(target, state, {.step = 2}, group);
      } catch (const ErrorException& error) {
        return error.error();
      }
      return {};
    };
    const auto unsupported = torch::zeros({1}, at::kComplexDouble);
    EXPECT_EQ(save_error(path, {.module = *training.net(), .tensors = {{"z", unsupported}}}).code, ExitCode::kUsage);
    EXPECT_EQ(save_error(directory.path() / "no" / "file", training.state()).code, ExitCode::kCantCreate);
    const auto number = torch::zeros({1});
    EXPECT_THAT(save_error(path, {.module = *training.net(), .tensors = {{"\xff", number}}}).message,
                HasSubstr("UTF-8"))
        << "an exception of rank 0 is the error of all ranks";
    torch::optim::LBFGS lbfgs(training.net()->parameters(), {});
    EXPECT_THAT(save_error(path, {.module = *training.net(), .optimizer = &lbfgs}).message,
                HasSubstr("use SGD, Adam, AdamW, Adagrad or RMSprop"));
    torch::nn::Linear other(2, 2);
    torch::optim::SGD of_other(other->parameters(), 0.1);
    EXPECT_THAT(save_error(path, {.module = *training.net(), .optimizer = &of_other}).message,
                HasSubstr("that the module does not have"));

    ASSERT_TRUE(training.load(path));
    EXPECT_EQ(training.position().step, 1);
    group.barrier();
    for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
      EXPECT_EQ(entry.path(), path) << "a temporary file was left";
  });
}

TEST(DdpCheckpoint, OneRankNeedsNoGroup) {
  const test::TemporaryDirectory directory;
  const ProcessGroup alone;
  Training training(sgd(), alone, 1);
  training.train(3);
  training.save(directory.path() / "file");
  Training restored(sgd(), alone, 2);
  ASSERT_TRUE(restored.load(directory.path() / "file"));
  expect_same_bits(restored.net(), training.net());
  GradScaler scaler(at::kCPU, {.init_scale = 8});
  save_checkpoint(directory.path() / "file", {.module = *training.net(), .tensors = scaler.tensors()}, {}, alone);
  GradScaler other(at::kCPU);
  load_checkpoint(directory.path() / "file", {.module = *training.net(), .tensors = other.tensors()}, alone);
  EXPECT_EQ(other.scale().item<float>(), 8);
}

}  // namespace
}  // namespace oarlock
