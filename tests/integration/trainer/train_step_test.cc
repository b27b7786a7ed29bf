// The optimizer step over ranks: accumulation, mixed precision, and values that are not finite.
#include "trainer/engine/train_step.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "ddp/reducer.h"
#include "fields/yaml_reader.h"
#include "tests/support/rank_harness.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensor_copies.h"
#include "tests/support/trainer_program/tiny_task.h"

namespace oarlock {
namespace {

using test::run_ranks;
using test::TemporaryDirectory;

constexpr int64_t kBatch = 4;  // samples of a micro-batch

std::unique_ptr<Task> tiny_task(const std::string& fault, bool batch_norm, double dropout) {
  const std::string text = fmt::format("{{data: {{samples: 64}}, model: {{dropout: {}, batch_norm: {}, fault: {}}}}}",
                                       dropout, batch_norm, fault);
  yaml::Problems problems("test");
  YamlFieldsReader reader(yaml::parse_all(text, "test")->front(), "", problems);
  std::unique_ptr<Task> task = test::make_tiny(reader);
  EXPECT_TRUE(problems.empty());
  EXPECT_TRUE(task->prepare());
  return task;
}

// One rank's step, with the objects that it uses.
struct Trainer {
  Trainer(const TrainerConfig& used, const ProcessGroup& group, const std::string& fault = "{}",
          bool batch_norm = false, double dropout = 0)
      : config(used) {
    ::setenv("RANK", std::to_string(group.rank()).c_str(), 1);  // the fault is limited to one rank
    task = tiny_task(fault, batch_norm, dropout);
    seed_model(1);
    model = DistributedDataParallelBase::create(task->build_model(), group, config.ddp).value();
    step = TrainStep::create(config, *task, *model, group).value();
  }

  // One step on the samples from `first` on, in micro-batches of these sizes.
  void run(int64_t index, int64_t first, const std::vector<int64_t>& sizes) {
    int64_t samples = 0;
    for (const int64_t size : sizes) samples += size;
    step->begin(index, samples);
    for (const int64_t size : sizes) {
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < size; ++i) indices.push_back(first++);
      EXPECT_FALSE(step->complete());
      step->add(make_batch(task->train_data(), indices));
    }
    EXPECT_TRUE(step->complete());
  }

  TensorMap weights() const {
    TensorMap out;
    for (const NamedTensor& item : model->parameters()) out[item.name] = item.tensor.detach().clone();
    return out;
  }

  TrainerConfig config;
  std::unique_ptr<Task> task;
  std::unique_ptr<DistributedDataParallelBase> model;
  std::unique_ptr<TrainStep> step;
};

// The weights and averages after three steps on the same 16 samples each, by `ranks` ranks with `accumulation`
// micro-batches.
TensorMap trained(const TrainerConfig& config, int ranks, int64_t accumulation) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "weights";
  run_ranks(ranks, [&](const ProcessGroup& group) {
    Trainer trainer(config, group);
    const std::vector<int64_t> sizes(static_cast<size_t>(accumulation), kBatch);
    for (int64_t i = 0; i < 3; ++i) {
      trainer.run(i, 16 * i + group.rank() * accumulation * kBatch, sizes);
    }
    TensorMap out = trainer.weights();
    for (const Stateful* part : trainer.step->stateful()) {
      for (const auto& [name, tensor] : part->tensors()) out[std::string(part->section()) + "/" + name] = tensor;
    }
    if (group.rank() == 0) {
      ASSERT_TRUE(write_safetensors(path, out));
    }
  });
  return read_safetensors(path).value().tensors;
}

TrainerConfig sgd() {
  TrainerConfig config;
  config.optimizer.kind = OptimizerKind::kSgd;
  config.optimizer.lr = 0.5;
  config.optimizer.momentum = 0.9;
  return config;
}

TEST(TrainStep, AccumulationEqualsMoreRanksOnTheSameSamples) {
  const TrainerConfig plain = sgd();
  TrainerConfig clipped = sgd();
  clipped.gradient.clip_norm = 0.1;
  clipped.ema.enabled = true;
  clipped.ema.decay = 0.5;
  TrainerConfig skipping = sgd();
  skipping.nonfinite.loss = NonfiniteLoss::kSkip;
  TrainerConfig adamw;
  adamw.gradient.clip_value = 0.01;
  for (const TrainerConfig& config : {plain, clipped, skipping, adamw}) {
    const TensorMap expected = trained(config, 4, 1);
    for (const auto& [ranks, accumulation] : {std::pair{1, 4}, {2, 2}}) {
      const TensorMap actual = trained(config, ranks, accumulation);
      ASSERT_EQ(actual.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        EXPECT_LE((actual.at(name) - tensor).abs().max().item<double>(), 2e-6)
            << name << " of " << ranks << " ranks with " << accumulation << " micro-batches";
      }
    }
  }
}

TEST(TrainStep, UnevenMicroBatchesCountBySamples) {
  run_ranks(1, [](const ProcessGroup& group) {
    Trainer whole(sgd(), group);
    Trainer parts(sgd(), group);
    whole.run(0, 0, {10});
    parts.run(0, 0, {4, 4, 2});
    EXPECT_NEAR(whole.step->read().loss, parts.step->read().loss, 1e-6);
    for (const auto& [name, tensor] : whole.weights()) {
      EXPECT_LE((parts.weights().at(name) - tensor).abs().max().item<double>(), 1e-6) << name;
    }
    parts.step->begin(1, 4);
    const std::vector<int64_t> five = {0, 1, 2, 3, 4};
    EXPECT_THROW(parts.step->add(make_batch(parts.task->train_data(), five)), std::logic_error);
  });
}

double distance(const TensorMap& a, const TensorMap& b) {
  double squares = 0;
  for (const auto& [name, tensor] : a) squares += (tensor - b.at(name)).square().sum().item<double>();
  return std::sqrt(squares);
}

// Comparing runs with one another does not show whether they clip at all.
TEST(TrainStep, ClipsTheUnscaledGradientBeforeTheUpdate) {
  TrainerConfig plain;
  plain.optimizer.kind = OptimizerKind::kSgd;
  plain.optimizer.lr = 1;
  plain.gradient.clip_norm = 0.01;
  TrainerConfig scaled = plain;
  scaled.amp.enabled = true;
  scaled.amp.dtype = AmpType::kFp16;
  scaled.amp.init_scale = 64;
  for (const TrainerConfig& config : {plain, scaled}) {
    run_ranks(1, [&](const ProcessGroup& group) {
      Trainer trainer(config, group);
      const TensorMap before = trainer.weights();
      trainer.run(0, 0, {16});
      EXPECT_NEAR(distance(before, trainer.weights()), 0.01, 1e-4) << "the update has the length of the clipped norm";
      const double norm = trainer.step->read().gradient_norm.value_or(0);
      EXPECT_TRUE(norm > 0.02 && norm < 10) << norm << " is not the norm of the unscaled gradient";
    });
  }
}

// With a learning rate of 0, the loss of the same samples changes by the dropout only.
TEST(TrainStep, DrawsOtherDropoutInEachStepAndOnEachRank) {
  TrainerConfig config = sgd();
  config.optimizer.lr = 0;
  run_ranks(2, [&](const ProcessGroup& group) {
    Trainer trainer(config, group, "{}", /*batch_norm=*/false, /*dropout=*/0.5);
    const auto loss_of = [&](int64_t step) {
      trainer.run(step, 0, {16});
      return trainer.step->read().loss;
    };
    const double first = loss_of(0);
    EXPECT_NE(loss_of(1), first);
    EXPECT_EQ(loss_of(0), first);
    std::array<double, 2> largest = {first, -first};
    group.all_reduce_max(largest);
    EXPECT_NE(largest[0], -largest[1]);
  });
}

bool same(const TensorMap& a, const TensorMap& b) {
  return std::all_of(a.begin(), a.end(), [&](const auto& item) { return at::equal(item.second, b.at(item.first)); });
}

// before_update() precedes every change of the state, because a checkpoint may still copy the parameters.
TEST(TrainStep, ChangesNothingBeforeBeforeUpdate) {
  TrainerConfig config;
  config.ema.enabled = true;
  run_ranks(2, [&](const ProcessGroup& group) {
    Trainer trainer(config, group);
    for (int64_t index = 0; index < 2; ++index) {
      const TensorMap before = trainer.weights();
      std::vector<TensorMap> states;
      for (Stateful* part : trainer.step->stateful()) states.push_back(test::copies_of(part->tensors()));
      int calls = 0;
      trainer.step->before_update([&] {
        ++calls;
        EXPECT_TRUE(same(before, trainer.weights()));
        for (size_t i = 0; i < states.size(); ++i)
          EXPECT_TRUE(same(states[i], trainer.step->stateful()[i]->tensors())) << i;
      });
      trainer.run(index, index * 16, {8, 8});
      EXPECT_EQ(calls, 1);
      EXPECT_FALSE(same(before, trainer.weights()));
    }
  });
}

// One rank's loss is NaN in the second step: all ranks skip the step, and continue together.
TEST(TrainStep, OneRanksNaNSkipsTheStepOnAllRanks) {
  TrainerConfig by_loss = sgd();
  by_loss.nonfinite.loss = NonfiniteLoss::kSkip;
  TrainerConfig by_gradient = sgd();
  by_gradient.nonfinite.gradient = NonfiniteGradient::kSkip;
  TrainerConfig by_norm = by_gradient;
  by_norm.gradient.clip_norm = 1;
  TrainerConfig adamw = by_loss;
  adamw.optimizer = {};
  TrainerConfig scaled = sgd();
  scaled.amp.enabled = true;
  scaled.amp.dtype = AmpType::kFp16;
  scaled.amp.init_scale = 64;
  for (const TrainerConfig& config : {by_loss, by_gradient, by_norm, adamw, scaled}) {
    run_ranks(3, [&](const ProcessGroup& group) {
      Trainer trainer(config, group, "{kind: nan, rank: 1, step: 1}");
      const int64_t first = group.rank() * kBatch;
      trainer.run(0, first, {kBatch});
      const TensorMap before = trainer.weights();
      const TensorMap state = test::copies_of(trainer.step->stateful()[0]->tensors());
      trainer.run(1, first, {kBatch});
      EXPECT_TRUE(same(before, trainer.weights()));
      EXPECT_TRUE(same(state, trainer.step->stateful()[0]->tensors()));
      EXPECT_EQ(trainer.step->read().skipped, 1);
      EXPECT_EQ(trainer.step->read().skipped_in_a_row, 1);
      EXPECT_EQ(trainer.step->read().loss_scale.value_or(32), 32) << "backed off on every rank";
      trainer.run(2, first, {kBatch});
      EXPECT_FALSE(same(before, trainer.weights()));
      EXPECT_EQ(trainer.step->read().skipped, 1);
      EXPECT_EQ(trainer.step->read().skipped_in_a_row, 0);
      EXPECT_TRUE(equal_on_all_ranks(trainer.model->parameters(), group));
    });
  }
}

TensorMap buffers_of(const Trainer& trainer) {
  TensorMap out;
  for (const NamedTensor& item : trainer.model->buffers()) out[item.name] = item.tensor.clone();
  return out;
}

// The forward pass of a skipped step has written to the running statistics.
TEST(TrainStep, ASkippedStepLeavesTheRunningStatisticsAsTheyWere) {
  TrainerConfig by_loss = sgd();
  by_loss.nonfinite.loss = NonfiniteLoss::kSkip;
  TrainerConfig scaled = sgd();
  scaled.amp.enabled = true;
  scaled.amp.dtype = AmpType::kFp16;
  scaled.amp.init_scale = 64;
  for (const TrainerConfig& config : {by_loss, scaled}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      Trainer trainer(config, group, "{kind: nan, rank: 1, step: 2}", /*batch_norm=*/true);
      const int64_t first = group.rank() * 2 * kBatch;
      trainer.run(0, first, {kBatch, kBatch});  // two calls of the task's step
      const TensorMap before = buffers_of(trainer);
      ASSERT_TRUE(before.contains("norm.running_var"));
      trainer.run(1, first, {kBatch, kBatch});
      EXPECT_EQ(trainer.step->read().skipped, 1);
      EXPECT_TRUE(same(before, buffers_of(trainer)));
      trainer.run(2, first, {kBatch, kBatch});
      EXPECT_EQ(trainer.step->read().skipped, 1);
      const TensorMap after = buffers_of(trainer);
      EXPECT_EQ(after.at("norm.num_batches_tracked").item<int64_t>(),
                before.at("norm.num_batches_tracked").item<int64_t>() + 2);
      EXPECT_FALSE(same(before, after));
    });
  }
}

// NaN in the state that PowerSGD keeps between steps would remain there, and be saved in checkpoints.
TEST(TrainStep, ASkippedStepLeavesPowerSgdsMemoryAsItWas) {
  TrainerConfig by_loss = sgd();
  by_loss.nonfinite.loss = NonfiniteLoss::kSkip;
  TrainerConfig by_gradient = sgd();
  by_gradient.nonfinite.gradient = NonfiniteGradient::kSkip;
  TrainerConfig scaled = sgd();
  scaled.amp.enabled = true;
  scaled.amp.dtype = AmpType::kFp16;
  scaled.amp.init_scale = 64;
  const auto state_of = [](Trainer& trainer) {
    trainer.model->synchronize_reduction_state();
    return trainer.model->reduction_state().tensors;
  };
  for (TrainerConfig config : {by_loss, by_gradient, scaled}) {
    config.ddp.comm_hook = CommHook::kPowerSgd;
    config.ddp.powersgd.start_iteration = 2;
    config.ddp.powersgd.min_compression_rate = 0.5;
    // PowerSGD has no state before its first compressed step.
    for (const int64_t bad : {2, 5}) {
      run_ranks(2, [&](const ProcessGroup& group) {
        Trainer trainer(config, group, fmt::format("{{kind: nan, rank: 1, step: {}}}", bad));
        const int64_t first = group.rank() * kBatch;
        for (int64_t step = 0; step < bad; ++step) trainer.run(step, first, {kBatch});
        const TensorMap weights = trainer.weights();
        const TensorMap before = state_of(trainer);
        trainer.run(bad, first, {kBatch});
        EXPECT_EQ(trainer.step->read().skipped, 1);
        EXPECT_TRUE(same(weights, trainer.weights()));
        const TensorMap after = state_of(trainer);
        EXPECT_TRUE(same(before, after));
        for (const auto& [name, tensor] : after) EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
        if (group.rank() == 0) {
          EXPECT_FALSE(after.empty());
        }
        for (int64_t step = bad + 1; step < bad + 4; ++step) trainer.run(step, first, {kBatch});
        EXPECT_EQ(trainer.step->read().skipped, 1) << "the steps after it are taken";
        EXPECT_FALSE(same(weights, trainer.weights()));
        EXPECT_TRUE(equal_on_all_ranks(trainer.model->parameters(), group));
      });
    }
  }
}

// An infinite loss makes its rank's gradient non-finite, even if the gradient itself would be finite.
TEST(TrainStep, AnInfiniteLossIsNotFinite) {
  TrainerConfig config = sgd();
  config.nonfinite.loss = NonfiniteLoss::kSkip;
  run_ranks(2, [&](const ProcessGroup& group) {
    Trainer trainer(config, group, "{kind: inf, rank: 0, step: 0}");
    const TensorMap before = trainer.weights();
    trainer.run(0, 0, {kBatch});
    EXPECT_TRUE(same(before, trainer.weights()));
    EXPECT_EQ(trainer.step->read().skipped, 1);
  });
}

TEST(TrainStep, MixedPrecisionStaysNearFullPrecision) {
  const TensorMap expected = trained(sgd(), 2, 2);
  for (const AmpType dtype : {AmpType::kBf16, AmpType::kFp16}) {
    TrainerConfig config = sgd();
    config.amp.enabled = true;
    config.amp.dtype = dtype;
    config.amp.init_scale = 1024;
    const TensorMap actual = trained(config, 2, 2);
    for (const auto& [name, tensor] : expected) {
      const double difference = (actual.at(name) - tensor).abs().max().item<double>();
      EXPECT_LE(difference, dtype == AmpType::kBf16 ? 0.03 : 0.005) << name;
      if (name == "fc1.weight") {
        EXPECT_GT(difference, 0) << "the lower precision was not used";
      }
    }
    EXPECT_EQ(actual.contains("grad-scaler/scale"), dtype == AmpType::kFp16);
  }
}

TEST(TrainStep, WhatIsOffIsNotThere) {
  run_ranks(1, [](const ProcessGroup& group) {
    Trainer trainer(sgd(), group);
    trainer.run(0, 0, {kBatch});
    const StepReading reading = trainer.step->read();
    EXPECT_GT(reading.loss, 0);
    EXPECT_FALSE(reading.gradient_norm);
    EXPECT_FALSE(reading.loss_scale);
    EXPECT_EQ(trainer.step->average(), nullptr);
    EXPECT_EQ(trainer.step->stateful().size(), 1U);
  });
}

}  // namespace
}  // namespace oarlock
