// One rank of a training loop with oarlock::ddp and nothing else, for scripts/bench ddp; `oarlock launch` starts it.
//
//   oarlock-bench-ddp MODEL BATCH STEPS CHANNELS_LAST SCHEME RECORD
//
// Schemes: "shared-memory" and "gloo" are DistributedDataParallel; "per-gradient" all-reduces every gradient after the
// backward pass, as NVIDIA's TorchFort does; "none" does not average gradients, and "only" averages without computing:
// together they bound what any scheme over Gloo can reach.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/_fused_sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include "ddp/ddp.h"
#include "tests/bench/trainer/models.h"
#include "tests/bench/trainer/record.h"

namespace oarlock::bench {
namespace {

struct Case {
  ModelKind model = ModelKind::kSmall;
  int64_t batch = 0;  // samples per rank
  int64_t steps = 0;
  bool is_channels_last = false;
  std::string scheme;
};

// Model with the forward() that DistributedDataParallel calls.
class LossModule : public torch::nn::Module {
 public:
  explicit LossModule(std::shared_ptr<Model> model) : model_(register_module("model", std::move(model))) {}
  at::Tensor forward(const at::Tensor& input, const at::Tensor& label) { return model_->loss(input, label); }

 private:
  std::shared_ptr<Model> model_;
};

// SGD with momentum in one kernel, as torch.optim.SGD(fused=True).
class FusedSgd {
 public:
  explicit FusedSgd(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const at::Tensor& parameter : parameters_) buffers_.push_back(torch::zeros_like(parameter));
  }
  void step() {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
    const torch::NoGradGuard no_grad;
    at::_fused_sgd_(parameters_, gradients, buffers_, /*weight_decay=*/0, /*momentum=*/0.9, /*lr=*/1e-3,
                    /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false, is_first_);
    is_first_ = false;
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  bool is_first_ = true;
};

std::vector<at::Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& parameter : module.parameters()) out.push_back(parameter.grad());
  return out;
}

// All collectives are started before the first one is awaited.
void average_each(const std::vector<at::Tensor>& gradients, const ProcessGroup& group) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const at::Tensor& gradient : gradients) {
    std::vector<at::Tensor> one{gradient};
    works.push_back(group.c10d()->allreduce(one));
  }
  for (const auto& work : works) work->wait();
  for (const at::Tensor& gradient : gradients) gradient.div_(group.world_size());
}

at::Tensor rows(std::vector<int64_t> shape, int64_t count) {
  shape.insert(shape.begin(), count);
  return torch::empty(shape);
}

// Times the all-reduce of gradients of the model's size, in buckets of 25 MiB.
void time_only_reducing(const Case& config, const std::vector<at::Tensor>& parameters, const ProcessGroup& group,
                        StepRecord& record) {
  int64_t numbers = 0;
  for (const at::Tensor& parameter : parameters) numbers += parameter.numel();
  constexpr int64_t kBucket = 25 * 1024 * 1024 / 4;
  const std::vector<at::Tensor> buckets = torch::zeros({numbers}).split(kBucket);
  for (int64_t step = 0; step < config.steps; ++step) {
    record.mark();
    average_each(buckets, group);
  }
}

void train(const Case& config, const std::string& path) {
  torch::set_num_threads(1);
  const DistributedContext ranks = init_process_group();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(ranks.group.rank() + 1));
  const int64_t samples = config.batch * config.steps;
  const at::Tensor inputs = rows(input_shape(config.model), samples).normal_(0, 1, generator);
  const at::Tensor labels =
      rows(label_shape(config.model), samples).to(torch::kLong).random_(0, outputs(config.model), generator);
  torch::manual_seed(0);
  const auto module = std::make_shared<LossModule>(make_model(config.model));
  const auto format = config.is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  for (const at::Tensor& parameter : module->parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(format));

  const bool is_ddp = config.scheme == "shared-memory" || config.scheme == "gloo";
  std::optional<DistributedDataParallel<LossModule>> ddp;
  if (is_ddp) {
    ddp.emplace(
        module, ranks.group,
        DdpOptions{
            .gradient_as_bucket_view = true, .static_graph = true, .shared_memory = config.scheme == "shared-memory"});
    if (ddp->uses_shared_memory() != (config.scheme == "shared-memory")) throw std::runtime_error("wrong transport");
  }
  FusedSgd optimizer(module->parameters());
  StepRecord record(static_cast<size_t>(config.steps) + 1);
  if (config.scheme == "only") {
    time_only_reducing(config, module->parameters(), ranks.group, record);
  } else {
    for (int64_t step = 0; step < config.steps; ++step) {
      record.mark();
      const at::Tensor input = inputs.narrow(0, step * config.batch, config.batch);
      const at::Tensor x = config.is_channels_last ? input.contiguous(format) : input;
      const at::Tensor label = labels.narrow(0, step * config.batch, config.batch);
      const at::Tensor loss = ddp ? ddp->forward(x, label) : module->forward(x, label);
      loss.backward();
      if (config.scheme == "per-gradient") average_each(gradients_of(*module), ranks.group);
      optimizer.step();
      ddp ? ddp->zero_grad() : module->zero_grad();
    }
  }
  record.mark();
  if (ranks.group.rank() == 0) record.write(path);
  ranks.group.barrier();
}

ModelKind model_of(const std::string& name) {
  if (name == "small") return ModelKind::kSmall;
  if (name == "mlp") return ModelKind::kMlp;
  if (name == "cnn") return ModelKind::kCnn;
  if (name == "resnet") return ModelKind::kResnet;
  throw std::invalid_argument("unknown model '" + name + "'");
}

}  // namespace
}  // namespace oarlock::bench

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() != 6) throw std::invalid_argument("see the head of tests/bench/ddp/main.cc");
    oarlock::bench::train({.model = oarlock::bench::model_of(arguments[0]),
                           .batch = std::stoll(arguments[1]),
                           .steps = std::stoll(arguments[2]),
                           .is_channels_last = arguments[3] == "true",
                           .scheme = arguments[4]},
                          arguments[5]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
