// Trains a TorchScript module that Python has exported (export_script.py), with any number of ranks: it classifies
// stripes as horizontal, vertical or diagonal. docs/guides/ddp.md explains it.
//
//   script MODULE
#include <oarlock/ddp.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <array>
#include <cstdio>
#include <memory>
#include <utility>

constexpr int64_t kBatch = 96;  // of all ranks together
constexpr int kSteps = 100;

// Returns noisy images [n, 1, 12, 12] with stripes of a period of 4 pixels, and their directions [n].
std::pair<torch::Tensor, torch::Tensor> stripes(int64_t n) {
  const torch::Tensor direction = torch::randint(3, {n});
  const torch::Tensor y = torch::arange(12).view({1, 12, 1}), x = torch::arange(12).view({1, 1, 12});
  const torch::Tensor of = direction.view({n, 1, 1});
  const torch::Tensor position = torch::where(of.eq(0), y, torch::where(of.eq(1), x, y + x));
  const torch::Tensor images = torch::sin((position + 4 * torch::rand({n, 1, 1})) * (M_PI / 2));
  return {(images + 0.3 * torch::randn({n, 12, 12})).unsqueeze(1), direction};
}

void train(const char* path) {
  const oarlock::DistributedContext ranks = oarlock::init_process_group();
  const oarlock::ProcessGroup& group = ranks.group;
  const auto net = std::make_shared<oarlock::ScriptModel>(torch::jit::load(path));  // its parameters, by Python's names
  oarlock::DistributedDataParallel model(net, group);
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  torch::manual_seed(1);
  const int64_t own = kBatch / group.world_size();
  for (int step = 0; step < kSteps; ++step) {
    const auto [images, directions] = stripes(kBatch);
    optimizer.zero_grad();
    const torch::Tensor logits = model.forward(images.narrow(0, group.rank() * own, own));
    torch::cross_entropy_loss(logits, directions.narrow(0, group.rank() * own, own)).backward();
    optimizer.step();
  }
  if (group.rank() != 0) return;
  const torch::NoGradGuard no_grad;
  net->eval();
  const auto [images, directions] = stripes(300);
  const torch::Tensor logits = net->forward(images);
  std::printf("ranks %d, loss %.5f, accuracy %.3f, first parameter %s\n", group.world_size(),
              torch::cross_entropy_loss(logits, directions).item<double>(),
              logits.argmax(1).eq(directions).to(torch::kDouble).mean().item<double>(),
              net->named_parameters().keys()[0].c_str());
}

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::invalid_argument("usage: script MODULE");
    train(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
