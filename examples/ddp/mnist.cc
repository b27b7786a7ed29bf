// Trains a small network on MNIST or Fashion-MNIST with any number of ranks. The batch of a step has 128 images of all
// ranks together, so that two ranks compute what one rank computes. docs/guides/ddp.md explains each line.
//
//   mnist DIRECTORY STEPS
#include <oarlock/ddp.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/mnist.h>
#include <torch/data/transforms/stack.h>
#include <torch/data/transforms/tensor.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <cstdio>
#include <string>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("convolution", convolution);
    register_module("norm", norm);
    register_module("linear", linear);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return linear(torch::max_pool2d(torch::relu(norm(convolution(images))), 4).flatten(1));
  }

  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(1, 16, 5)};  // [n, 1, 28, 28] -> [n, 16, 24, 24]
  oarlock::BatchNorm2d norm{16};
  torch::nn::Linear linear{16 * 6 * 6, 10};
};
TORCH_MODULE(Net);

auto read(const std::string& directory, torch::data::datasets::MNIST::Mode mode) {
  return torch::data::datasets::MNIST(directory, mode)
      .map(torch::data::transforms::Normalize<>(0.2860, 0.3530))
      .map(torch::data::transforms::Stack<>());
}

void train(const std::string& directory, int steps) {
  const oarlock::DistributedContext ranks = oarlock::init_process_group();
  const oarlock::ProcessGroup& group = ranks.group;
  torch::manual_seed(1);
  Net net;
  oarlock::DistributedDataParallel model(net, group, {.sync_batch_norm = true});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));

  const auto loader_of = [&](auto data, oarlock::DistributedSampler& sampler) {
    return torch::data::make_data_loader(std::move(data), sampler, static_cast<size_t>(128 / group.world_size()));
  };
  oarlock::DistributedSampler train_sampler({.size = 60000, .rank = group.rank(), .world_size = group.world_size()});
  const auto train_loader = loader_of(read(directory, torch::data::datasets::MNIST::Mode::kTrain), train_sampler);
  int step = 0;
  for (int epoch = 0; step < steps; ++epoch) {
    train_sampler.set_epoch(epoch);
    for (auto& batch : *train_loader) {
      if (step++ == steps) break;
      optimizer.zero_grad();
      const torch::Tensor loss = torch::cross_entropy_loss(model.forward(batch.data), batch.target);
      loss.backward();  // averages the gradients over the ranks
      optimizer.step();
    }
  }

  const torch::NoGradGuard no_grad;
  net->eval();
  oarlock::DistributedSampler test_sampler(
      {.size = 10000, .rank = group.rank(), .world_size = group.world_size(), .shuffle = false});
  const auto test_loader = loader_of(read(directory, torch::data::datasets::MNIST::Mode::kTest), test_sampler);
  std::array<double, 3> sums{};  // loss, correct images, images
  for (auto& batch : *test_loader) {
    const torch::Tensor logits = net->forward(batch.data);
    sums[0] += torch::cross_entropy_loss(logits, batch.target, {}, at::Reduction::Sum).item<double>();
    sums[1] += logits.argmax(1).eq(batch.target).sum().item<double>();
    sums[2] += static_cast<double>(batch.data.size(0));
  }
  group.all_reduce_sum(sums);
  if (group.rank() == 0) {
    std::printf("ranks %d, test loss %.5f, accuracy %.4f\n", group.world_size(), sums[0] / sums[2], sums[1] / sums[2]);
  }
}

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? argv[1] : "data", argc > 2 ? std::stoi(argv[2]) : 469);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
