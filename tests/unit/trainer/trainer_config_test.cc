// Reading the trainer's configuration, and the problems that are reported for invalid ones.
#include "trainer/config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

using testing::HasSubstr;

// A task whose data section has `path` and whose model section has `hidden`.
struct FakeTasks {
  std::string file = "f.yaml";
  std::string task;
  std::string path;
  int hidden = 0;

  Result<TrainerConfig> parse(const std::string& text) {
    const TaskNames names = {{"images", "text"}, [this](const std::string& name, Fields& root) {
                               task = name;
                               root.section("data", [&](Fields& data) { data.field("path", path, ""); }, "");
                               root.section("model", [&](Fields& model) { model.field("hidden", hidden, {}, ""); }, "");
                             }};
    return parse_config(text, file, names);
  }
};

std::string error_of(const std::string& text) {
  FakeTasks tasks;
  const auto config = tasks.parse(text);
  EXPECT_FALSE(config);
  if (config) return "";
  EXPECT_EQ(config.error().code, ExitCode::kConfig);
  return config.error().message;
}

constexpr char kAll[] = R"(
task: images
data: {path: /d}
model: {hidden: 7}
seed: 9
epochs: 3
batch: {size: 32, per: global, drop_last: true}
optimizer: {name: sgd, lr: 0.1, weight_decay: 1e-4, momentum: 0.9, nesterov: true}
schedule: {name: cosine, warmup_steps: 10}
checkpoint: {dir: /ck, every_steps: 5, every_epochs: 0, keep: 2}
eval: {every_epochs: 2, batch_size: 100}
ddp: {bucket_cap_mb: 12.5, gradient_as_bucket_view: false, find_unused_parameters: true, static_graph: true, broadcast_buffers: false}
distributed: {backend: gloo, rendezvous_timeout_seconds: 7, timeout_seconds: 8.5}
loader: {threads: 0, prefetch: 4}
log: {every_steps: 3}
device: cpu
threads: 2
)";

TEST(TrainerConfig, ReadsEveryKey) {
  FakeTasks tasks;
  const auto config = tasks.parse(kAll);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->task, "images");
  EXPECT_EQ(tasks.task, "images");
  EXPECT_EQ(tasks.path, "/d");
  EXPECT_EQ(tasks.hidden, 7);
  EXPECT_EQ(config->seed, 9U);
  EXPECT_EQ(config->epochs, 3);
  EXPECT_FALSE(config->steps);
  EXPECT_EQ(config->batch.size, 32);
  EXPECT_EQ(config->batch.per, BatchPer::kGlobal);
  EXPECT_TRUE(config->batch.drop_last);
  EXPECT_EQ(config->optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(config->optimizer.lr, 0.1);
  EXPECT_EQ(config->optimizer.weight_decay, 1e-4);
  EXPECT_EQ(config->optimizer.momentum, 0.9);
  EXPECT_TRUE(config->optimizer.nesterov);
  EXPECT_EQ(config->schedule.kind, ScheduleKind::kCosine);
  EXPECT_EQ(config->schedule.warmup_steps, 10);
  EXPECT_EQ(config->checkpoint.dir, "/ck");
  EXPECT_EQ(config->checkpoint.every_steps, 5);
  EXPECT_EQ(config->checkpoint.every_epochs, 0);
  EXPECT_EQ(config->checkpoint.keep, 2);
  EXPECT_EQ(config->eval.every_epochs, 2);
  EXPECT_EQ(config->eval.batch_size, 100);
  EXPECT_EQ(config->ddp.bucket_cap_mb, 12.5);
  EXPECT_FALSE(config->ddp.gradient_as_bucket_view);
  EXPECT_TRUE(config->ddp.find_unused_parameters);
  EXPECT_TRUE(config->ddp.static_graph);
  EXPECT_FALSE(config->ddp.broadcast_buffers);
  EXPECT_EQ(config->distributed.backend, BackendKind::kGloo);
  EXPECT_EQ(config->distributed.rendezvous_timeout_seconds, 7);
  EXPECT_EQ(config->distributed.timeout_seconds, 8.5);
  EXPECT_EQ(config->loader.threads, 0);
  EXPECT_EQ(config->loader.prefetch, 4);
  EXPECT_EQ(config->log_every_steps, 3);
  EXPECT_EQ(config->device, DeviceKind::kCpu);
  EXPECT_EQ(config->threads, 2);
}

TEST(TrainerConfig, RequiresOnlyTaskAndLength) {
  FakeTasks tasks;
  const auto config = tasks.parse("{task: text, steps: 10}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->steps, 10);
  EXPECT_EQ(config->optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(config->optimizer.weight_decay, 0.01);
}

// A null value selects the default, and these keys have none.
TEST(TrainerConfig, NullIsNotAValueOfRequiredKeys) {
  EXPECT_THAT(error_of("task:\nsteps: 1\n"), HasSubstr("task: is required"));
  EXPECT_THAT(error_of("task: text\nsteps:\n"), HasSubstr("epochs: is required"));
}

TEST(TrainerConfig, SgdHasNoWeightDecayUnlessSet) {
  FakeTasks tasks;
  const auto config = tasks.parse("{task: text, steps: 10, optimizer: {name: sgd}}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->optimizer.weight_decay, 0);
}

TEST(TrainerConfig, ReportsAllProblemsWithPlaceAndSuggestion) {
  const std::string message = error_of(
      "task: imges\n"
      "epohcs: 3\n"
      "batch:\n"
      "  size: 0\n"
      "optimizer: {lr: fast, beta: [0.9, 0.99]}\n"
      "device: gpu\n");
  EXPECT_THAT(message, HasSubstr("f.yaml:1:7: task: 'imges' is not one of images, text; did you mean 'images'?"));
  EXPECT_THAT(message, HasSubstr("f.yaml:2:1: epohcs: unknown key; did you mean 'epochs'?"));
  EXPECT_THAT(message, HasSubstr("f.yaml:4:9: batch.size: 0 is not in [1, 2147483647]"));
  EXPECT_THAT(message, HasSubstr("f.yaml:5:17: optimizer.lr: expected a number, got 'fast'"));
  EXPECT_THAT(message, HasSubstr("f.yaml:5:23: optimizer.beta: unknown key; did you mean 'betas'?"));
  EXPECT_THAT(message, HasSubstr("f.yaml:6:9: device: 'gpu' is not one of auto, cpu, cuda"));
  EXPECT_THAT(message, HasSubstr("epochs: is required"));
}

TEST(TrainerConfig, RejectsUnknownKeysOfTaskSections) {
  const std::string message = error_of("task: images\nsteps: 1\ndata: {pth: /d}\nmodel: {hiden: 3}\n");
  EXPECT_THAT(message, HasSubstr("f.yaml:3:8: data.pth: unknown key; did you mean 'path'?"));
  EXPECT_THAT(message, HasSubstr("f.yaml:4:9: model.hiden: unknown key; did you mean 'hidden'?"));
}

struct WrongValue {
  const char* line;
  const char* message;
};

TEST(TrainerConfig, NamesTheKeyForKeysOfOtherTrainers) {
  struct Row {
    const char* line;
    const char* message;
  };
  constexpr Row kRows[] = {
      {.line = "lr: 0.1", .message = "f.yaml:3:1: lr: unknown key; the learning rate is optimizer.lr"},
      {.line = "batch_size: 8", .message = "f.yaml:3:1: batch_size: unknown key; the batch size is batch.size"},
      {.line = "num_workers: 2",
       .message = "f.yaml:3:1: num_workers: unknown key; the number of loader threads is loader.threads"},
      {.line = "precision: bf16",
       .message = "f.yaml:3:1: precision: unknown key; mixed precision is amp: {enabled: true, dtype: bf16}"},
      {.line = "wandb: true", .message = "f.yaml:3:1: wandb: unknown key; it belongs to tracking"},
      {.line = "optimizer: adamw",
       .message = "f.yaml:3:12: optimizer: expected a map, got 'adamw'; write {name: adamw}"},
      {.line = "batch: 32", .message = "f.yaml:3:8: batch: expected a map, got '32'; write {size: 32}"},
      {.line = "amp: true", .message = "f.yaml:3:6: amp: expected a map, got 'true'; write {enabled: true}"},
      {.line = "data: /d", .message = "f.yaml:3:7: data: expected a map, got '/d'; write {path: /d}"},
      {.line = "tracking: wandb",
       .message = "f.yaml:3:11: tracking: expected a map, got 'wandb'; write {wandb: {enabled: true}}"},
      {.line = "checkpoint: /c", .message = "f.yaml:3:13: checkpoint: expected a map, got '/c'; write {dir: /c}"},
      {.line = "seed: \"7\"",
       .message = "f.yaml:3:7: seed: expected an integer, got the string \"7\"; remove the quotes"},
      {.line = "optimizer: {lr: \"0.1\"}",
       .message = "f.yaml:3:17: optimizer.lr: expected a number, got the string \"0.1\"; remove the quotes"}};
  for (const Row& row : kRows)
    EXPECT_EQ(error_of(std::string("task: images\nepochs: 1\n") + row.line + "\n"), row.message) << row.line;
}

TEST(TrainerConfig, RejectsValuesOutOfRange) {
  const WrongValue cases[] = {
      {.line = "steps: 5", .message = "steps: the length is given twice"},
      {.line = "epochs: 0", .message = "epochs: 0 is not in [1, 1000000000]"},
      {.line = "seed: -1", .message = "seed: -1 is below 0"},
      {.line = "optimizer: {lr: 0}", .message = "optimizer.lr: 0 is not above 0"},
      {.line = "optimizer: {weight_decay: -0.1}", .message = "optimizer.weight_decay: -0.1 is below 0"},
      {.line = "optimizer: {momentum: 0.9}", .message = "optimizer.momentum: belongs to the optimizer sgd"},
      {.line = "optimizer: {name: sgd, betas: [0.9, 0.99]}",
       .message = "optimizer.betas: belongs to the optimizers adam"},
      {.line = "optimizer: {betas: [0.9]}", .message = "optimizer.betas: expected two numbers"},
      {.line = "optimizer: {betas: [0.9, 1.0]}", .message = "optimizer.betas: element 1: 1 is not in [0, 1)"},
      {.line = "optimizer: {name: sgd, momentum: 1}", .message = "optimizer.momentum: 1 is not in [0, 1)"},
      {.line = "optimizer: {name: sgd, nesterov: true}", .message = "optimizer.nesterov: needs a momentum"},
      {.line = "optimizer: {name: sdg}", .message = "did you mean 'sgd'?"},
      {.line = "schedule: {warmup_steps: -1}", .message = "schedule.warmup_steps: -1 is not in [0, 1000000000000]"},
      {.line = "schedule: {warmup_form: sedd, warmup_start_factor: 0.1}",
       .message = "schedule.warmup_start_factor: belongs to the warmup_form linear_lr"},
      {.line = "checkpoint: {keep: -1}", .message = "checkpoint.keep: -1 is not in [0, 1000000000]"},
      {.line = "ddp: {bucket_cap_mb: 0}", .message = "ddp.bucket_cap_mb: 0 is not in (0, 1000000]"},
      {.line = "distributed: {backend: mpi}", .message = "'mpi' is not one of auto, gloo, nccl"},
      {.line = "distributed: {timeout_seconds: 0}", .message = "distributed.timeout_seconds: 0 is not in (0, 1000000]"},
      {.line = "loader: {prefetch: 0}", .message = "loader.prefetch: 0 is not in [1, 1024]"},
      {.line = "log: {every_steps: 0}", .message = "log.every_steps: 0 is not in [1, 1000000000000]"},
      {.line = "threads: -1", .message = "threads: -1 is not in [0, 1024]"},
  };
  for (const WrongValue& wrong : cases) {
    const bool has_epochs = std::string(wrong.line).starts_with("epochs");
    const std::string text = std::string("task: images\n") + (has_epochs ? "" : "epochs: 1\n") + wrong.line + "\n";
    EXPECT_THAT(error_of(text), HasSubstr(wrong.message)) << wrong.line;
  }
}

// Larger values would overflow, or make a run allocate memory or wait without bound before its first step.
TEST(TrainerConfig, RejectsValuesThatARunCannotUse) {
  const WrongValue cases[] = {
      {.line = "batch: {size: 4611686018427387904}",
       .message = "batch.size: 4.611686018427388e+18 is not in [1, 2147483647]"},
      {.line = "gradient: {accumulation_steps: 4611686018427387904}", .message = "gradient.accumulation_steps: "},
      {.line = "loader: {prefetch: 1000000000}", .message = "loader.prefetch: 1000000000 is not in [1, 1024]"},
      {.line = "loader: {threads: 1000000}", .message = "loader.threads: 1000000 is not in [0, 1024]"},
      {.line = "threads: 1000000", .message = "threads: 1000000 is not in [0, 1024]"},
      {.line = "gpu_ids: [256]", .message = "gpu_ids: element 0: 256 is not in [0, 127]"},
      {.line = "epochs: 4611686018427387904", .message = "epochs: "},
      {.line = "distributed: {timeout_seconds: 1e300}",
       .message = "distributed.timeout_seconds: 1e+300 is not in (0, 1000000]"},
      {.line = "distributed: {rendezvous_timeout_seconds: 1e300}",
       .message = "distributed.rendezvous_timeout_seconds: "},
      {.line = "ddp: {bucket_cap_mb: 1e300}", .message = "ddp.bucket_cap_mb: "},
      {.line = "eval: {batch_size: 4611686018427387904}", .message = "eval.batch_size: "},
      {.line = "checkpoint: {keep: 2147483648}", .message = "checkpoint.keep: "},
      {.line = "tracking: {finish_timeout_seconds: 1e300}", .message = "tracking.finish_timeout_seconds: "},
      {.line = "tracking: {journal_limit_mib: 4611686018427387904}", .message = "tracking.journal_limit_mib: "},
      {.line = "tracking: {mlflow: {timeout_seconds: 1e300}}", .message = "tracking.mlflow.timeout_seconds: "},
      {.line = "profile: {steps: 1000000000000000}", .message = "profile.steps: "},
      {.line = "amp: {dtype: fp16, init_scale: 1e300}", .message = "amp.init_scale: "},
  };
  for (const WrongValue& wrong : cases) {
    const bool has_epochs = std::string(wrong.line).starts_with("epochs");
    const std::string text = std::string("task: images\n") + (has_epochs ? "" : "epochs: 1\n") + wrong.line + "\n";
    EXPECT_THAT(error_of(text), HasSubstr(wrong.message)) << wrong.line;
  }
}

constexpr char kJob[] = R"(apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ck}
---
apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j}
spec:
  nodes: 2
  trainer:
    task: images
    epochs: 2
    optimizer: {lrr: 1}
)";

TEST(TrainerConfig, ReadsTrainerSectionOfTrainingJob) {
  std::string text = kJob;
  EXPECT_THAT(error_of(text), HasSubstr("f.yaml:13:17: spec.trainer.optimizer.lrr: unknown key; did you mean 'lr'?"));
  text.replace(text.find("lrr: 1"), 6, "lr: 0.5");
  FakeTasks tasks;
  const auto config = tasks.parse(text);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->epochs, 2);
  EXPECT_EQ(config->optimizer.lr, 0.5);
}

// In a pod, the user's file is the TrainingJob.
TEST(TrainerConfig, NamesTheKeysOfTheJobInAPod) {
  FakeTasks tasks;
  tasks.file = "/etc/oarlock/trainer.json";
  const auto config = tasks.parse(R"({"task": "images", "epochs": 1, "optimizer": {"lrr": 1}})");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr(": spec.trainer.optimizer.lrr: unknown key"));
}

TEST(TrainerConfig, RejectsFilesWithoutExactlyOneConfiguration) {
  EXPECT_THAT(error_of(""), HasSubstr("f.yaml: the file contains no configuration"));
  EXPECT_THAT(error_of("kind: Pod\n"), HasSubstr("no TrainingJob, only kind 'Pod'"));
  EXPECT_THAT(error_of("kind: TrainingJob\nspec: {nodes: 1}\n"), HasSubstr("has no spec.trainer"));
  EXPECT_THAT(error_of("kind: TrainingJob\n---\nkind: TrainingJob\n"), HasSubstr("contains 2 TrainingJobs"));
  EXPECT_THAT(error_of("task: images\n---\ntask: images\n"), HasSubstr("several documents"));
  EXPECT_THAT(error_of("- 1\n"), HasSubstr("expected a map, got a list"));
  EXPECT_THAT(error_of("{task: [}"), HasSubstr("'}' does not close the '[' in line 1; write ']'"));
}

TEST(TrainerConfig, RejectsTrainingJobWithoutRanks) {
  std::string text = kJob;
  text.replace(text.find("lrr: 1"), 6, "lr: 0.5");
  text.replace(text.find("nodes: 2"), 8, "nodes: -2");
  EXPECT_THAT(error_of(text), testing::EndsWith(": spec.nodes: -2 is too small; the minimum is 1"));
  text.replace(text.find("nodes: -2"), 9, "processesPerNode: x");
  EXPECT_THAT(error_of(text), HasSubstr(": spec.processesPerNode: expected an integer, got 'x'"));
  text.replace(text.find("processesPerNode: x"), 19, "processesPerNode: auto");
  FakeTasks tasks;
  EXPECT_TRUE(tasks.parse(text));
}

TEST(TrainerConfig, RejectsNonFiniteNumbers) {
  const std::string text = "task: images\nsteps: 1\noptimizer: {lr: VALUE}\n";
  for (const std::string value : {".inf", "-.inf", ".nan"}) {
    std::string wrong = text;
    wrong.replace(wrong.find("VALUE"), 5, value);
    EXPECT_THAT(error_of(wrong), HasSubstr("f.yaml:3:17: optimizer.lr: ")) << value;
    EXPECT_THAT(error_of(wrong), HasSubstr("is not finite")) << value;
  }
}

TEST(TrainerConfig, SelectsJobByName) {
  const test::TemporaryDirectory directory;
  const std::string file = (directory.path() / "jobs.yaml").string();
  std::ofstream(file) << "kind: TrainingJob\nmetadata: {name: a}\nspec: {trainer: {task: images, steps: 1}}\n---\n"
                         "kind: TrainingJob\nmetadata: {name: b}\nspec: {trainer: {task: images, steps: 2}}\n---\n"
                         "kind: TrainingJob\nmetadata: {name: b, namespace: n}\nspec: {trainer: {task: images, steps: "
                         "3}}\n";
  const TaskNames names = {{"images"}, [](const std::string&, Fields&) {}};
  const auto steps_of = [&](const std::string& job) {
    const auto config = load_config({.path = file, .overrides = {}, .job = job}, names);
    EXPECT_TRUE(config) << config.error().message;
    return config ? config->steps : std::nullopt;
  };
  EXPECT_EQ(steps_of("a"), 1);
  EXPECT_EQ(steps_of("default/a"), 1);
  EXPECT_EQ(steps_of("default/b"), 2);
  EXPECT_EQ(steps_of("n/b"), 3);
  for (const std::string job : {"", "b", "c"}) {
    EXPECT_FALSE(load_config({.path = file, .overrides = {}, .job = job}, names)) << job;
  }
}

TEST(TrainerConfig, NamesMissingFile) {
  const auto config = load_config({.path = "/nowhere/trainer.yaml", .overrides = {}}, {});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ExitCode::kNoInput);
  EXPECT_THAT(config.error().message, HasSubstr("/nowhere/trainer.yaml"));
}

TEST(TrainerConfig, OneCycleRequiresMomentum) {
  EXPECT_THAT(error_of("task: images\nepochs: 1\noptimizer: {name: sgd}\nschedule: {name: onecycle}\n"),
              HasSubstr("set optimizer.momentum or cycle_momentum: false"));
  EXPECT_THAT(error_of("task: images\nepochs: 1\nschedule: {name: onecycle}\ncuda: {graphs: true}\n"),
              HasSubstr("set schedule.cycle_momentum: false"));
  FakeTasks tasks;
  EXPECT_TRUE(
      tasks.parse("task: images\nepochs: 1\noptimizer: {name: sgd}\n"
                  "schedule: {name: onecycle, cycle_momentum: false}\n"));
}

TEST(TrainerConfig, GraphsRejectUnrecordableSettings) {
  const std::string with_graphs = "task: images\nepochs: 1\ncuda: {graphs: true}\n";
  EXPECT_THAT(error_of(with_graphs + "ddp: {find_unused_parameters: true}\n"), HasSubstr("ddp.find_unused_parameters"));
  EXPECT_THAT(error_of(with_graphs + "ddp: {comm_hook: powersgd}\n"), HasSubstr("choose another ddp.comm_hook"));
  EXPECT_THAT(error_of(with_graphs + "gradient: {accumulation_steps: 2}\n"), HasSubstr("gradient.accumulation_steps"));
  FakeTasks tasks;
  EXPECT_TRUE(tasks.parse(with_graphs + "ddp: {static_graph: true}\n"));
}

TEST(TrainerConfig, EarlyStoppingAndPlateauRequireEvaluations) {
  EXPECT_THAT(error_of("task: images\nepochs: 1\neval: {every_epochs: 0}\nschedule: {name: plateau}\n"),
              HasSubstr("schedule: plateau requires evaluations"));
  EXPECT_THAT(error_of("task: images\nepochs: 1\neval: {every_epochs: 0}\nearly_stopping: {patience: 1}\n"),
              HasSubstr("set eval.every_epochs or eval.every_steps above 0"));
  FakeTasks tasks;
  EXPECT_TRUE(
      tasks.parse("task: images\nepochs: 1\neval: {every_epochs: 0, every_steps: 5}\n"
                  "early_stopping: {patience: 1}\n"));
}

TEST(TrainerConfig, ReadsJson) {
  FakeTasks tasks;
  const auto config = tasks.parse(R"({"task":"images","epochs":1,"optimizer":{"lr":0.0005}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->optimizer.lr, 0.0005);
}

// ---- the optimizer step ----------------------------------------------------------------------------------------

TEST(TrainerConfig, ReadsEveryKeyOfTheOptimizerStep) {
  FakeTasks tasks;
  const auto config = tasks.parse(R"(
task: text
steps: 10
optimizer:
  name: adam
  amsgrad: true
  maximize: true
  groups: [{preset: no_decay}, {match: "^head", lr: 0.2, lr_scale: 0.5, weight_decay: 0.3}]
schedule: {name: onecycle, interval: epoch, length: 9, pct_start: 0.2, div_factor: 5, final_div_factor: 50, anneal: linear, base_momentum: 0.7, max_momentum: 0.8, warmup_start_factor: 0.1}
scaling: {lr: sqrt, warmup: linear, reference_batch: 64, cap: 4}
gradient: {accumulation_steps: 4, clip_norm: 1, norm_type: inf}
amp: {enabled: true, dtype: fp16, init_scale: 128, growth_factor: 3, backoff_factor: 0.25, growth_interval: 7}
ema: {enabled: true, decay: 0.9995, warmup: true, buffers: true, evaluate: false}
nonfinite: {loss: skip, gradient: skip, max_consecutive: 5}
)");
  ASSERT_TRUE(config) << config.error().message;
  const OptimizerConfig& optimizer = config->optimizer;
  EXPECT_EQ(optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(optimizer.weight_decay, 0);
  EXPECT_TRUE(optimizer.amsgrad && optimizer.maximize);
  ASSERT_EQ(optimizer.groups.size(), 2U);
  EXPECT_EQ(optimizer.groups[0].preset, GroupPreset::kNoDecay);
  EXPECT_EQ(optimizer.groups[0].weight_decay, 0);
  EXPECT_EQ(optimizer.groups[1].match, "^head");
  EXPECT_EQ(optimizer.groups[1].lr, 0.2);
  EXPECT_EQ(optimizer.groups[1].lr_scale, 0.5);
  EXPECT_EQ(optimizer.groups[1].weight_decay, 0.3);
  EXPECT_EQ(config->schedule.kind, ScheduleKind::kOneCycle);
  EXPECT_EQ(config->schedule.interval, ScheduleInterval::kEpoch);
  EXPECT_EQ(config->schedule.length, 9);
  EXPECT_EQ(config->schedule.final_div_factor, 50);
  EXPECT_EQ(config->schedule.anneal, Anneal::kLinear);
  EXPECT_EQ(config->schedule.warmup_start_factor, 0.1);
  EXPECT_TRUE(config->schedule.cycle_momentum);
  EXPECT_EQ(config->schedule.base_momentum, 0.7);
  EXPECT_EQ(config->schedule.max_momentum, 0.8);
  EXPECT_EQ(config->scaling.lr, ScalingRule::kSqrt);
  EXPECT_EQ(config->scaling.warmup, ScalingRule::kLinear);
  EXPECT_EQ(config->scaling.reference_batch, 64);
  EXPECT_EQ(config->scaling.cap, 4);
  EXPECT_EQ(config->gradient.accumulation_steps, 4);
  EXPECT_EQ(config->gradient.clip_norm, 1);
  EXPECT_EQ(config->gradient.norm_type, NormType::kInfinity);
  EXPECT_TRUE(config->amp.scales());
  EXPECT_EQ(config->amp.init_scale, 128);
  EXPECT_EQ(config->amp.backoff_factor, 0.25);
  EXPECT_EQ(config->amp.growth_interval, 7);
  EXPECT_TRUE(config->ema.enabled && config->ema.warmup && config->ema.buffers);
  EXPECT_EQ(config->ema.decay, 0.9995);
  EXPECT_FALSE(config->ema.evaluate);
  EXPECT_EQ(config->nonfinite.loss, NonfiniteLoss::kSkip);
  EXPECT_EQ(config->nonfinite.gradient, NonfiniteGradient::kSkip);
  EXPECT_EQ(config->nonfinite.max_consecutive, 5);
}

TEST(TrainerConfig, RejectsInvalidOptimizerStep) {
  const WrongValue cases[] = {
      {.line = "optimizer: {groups: [{lr: 0.1}]}", .message = "optimizer.groups[0].match: a group has either"},
      {.line = "optimizer: {groups: [{match: a, preset: no_decay}]}",
       .message = "optimizer.groups[0].match: a group has either"},
      {.line = "optimizer: {groups: [{match: '('}]}",
       .message = "optimizer.groups[0].match: '(' is not a regular expression"},
      {.line = "optimizer: {groups: [{match: a, lr_sclae: 2}]}", .message = "did you mean 'lr_scale'?"},
      {.line = "optimizer: {name: sgd, amsgrad: true}",
       .message = "optimizer.amsgrad: belongs to the optimizers adam and adamw"},
      {.line = "optimizer: {name: sgd, momentum: 0.9, dampening: 0.1, nesterov: true}",
       .message = "optimizer.nesterov: needs"},
      {.line = "schedule: {name: multistep}", .message = "schedule.milestones: is required"},
      {.line = "schedule: {name: multistep, milestones: [5, 3]}",
       .message = "schedule.milestones: must be in ascending order"},
      {.line = "schedule: {name: cosine, gamma: 0.5}", .message = "schedule.gamma: belongs to the schedules step"},
      {.line = "schedule: {name: step, plateau: {patience: 3}}",
       .message = "schedule.plateau: belongs to the schedule plateau"},
      {.line = "schedule: {name: step, length: 3}", .message = "schedule.length: belongs to the schedules linear"},
      {.line = "gradient: {clip_norm: 1, clip_value: 1}",
       .message = "gradient.clip_value: gradients are clipped twice"},
      {.line = "gradient: {accumulation_steps: 0}", .message = "gradient.accumulation_steps: 0 is not in [1, 1000000]"},
      {.line = "amp: {dtype: bf16, init_scale: 2}", .message = "amp.init_scale: belongs to amp.dtype: fp16"},
      {.line = "ema: {decay: 1}", .message = "ema.decay: 1 is not in [0, 1)"},
      {.line = "scaling: {cap: 0.5}", .message = "scaling.cap: 0.5 is below 1"},
      {.line = "scaling: {reference_batch: 64, reference_world: 2}",
       .message = "scaling.reference_world: the reference is given twice"},
      {.line = "amp: {enabled: true, dtype: fp16}\nnonfinite: {gradient: stop}",
       .message = "nonfinite: gradient: stop would end the run"},
  };
  for (const WrongValue& wrong : cases) {
    EXPECT_THAT(error_of(std::string("task: images\nepochs: 1\n") + wrong.line + "\n"), HasSubstr(wrong.message))
        << wrong.line;
  }
}

}  // namespace
}  // namespace oarlock
