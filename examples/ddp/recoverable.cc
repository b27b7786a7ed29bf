// Trains a small network, and survives the loss of ranks: the other ranks wait for a new process, which receives their
// state. docs/guides/ddp.md explains it.
//
//   oarlock launch --nproc 2 --max-restarts 3 --restart-policy rank -- recoverable STEPS
#include <oarlock/ddp.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <exception>
#include <string>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("hidden", hidden);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(dropout(torch::relu(norm(hidden(x))))); }

  torch::nn::Linear hidden{2, 64};
  torch::nn::BatchNorm1d norm{64};
  torch::nn::Dropout dropout{0.1};
  torch::nn::Linear out{64, 1};
};
TORCH_MODULE(Net);

void train(int64_t steps) {
  const auto ranks = oarlock::init_recoverable_process_group();
  const oarlock::ProcessGroup& group = ranks->group();
  torch::manual_seed(1);
  Net net;
  oarlock::DistributedDataParallel model(net, group);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));

  oarlock::RecoverableLoop loop(*ranks, model, optimizer, {.seed = 1});
  while (loop.steps() < steps) {
    torch::Tensor loss;
    loop.step([&] {
      optimizer.zero_grad();
      const torch::Tensor x = torch::rand({64, 2}) * 2 - 1;  // from the seed, the rank and the step
      loss = torch::mse_loss(model.forward(x), torch::sin(3 * x).sum(1, /*keepdim=*/true));
      loss.backward();  // averages the gradients over the ranks; the step of the optimizer follows
    });
    if (loss.defined()) {
      std::printf("rank %d, step %ld, loss %.9g\n", group.rank(), loop.steps(), loss.item<double>());
      std::fflush(stdout);
    }
  }
  loop.finish();
  std::printf("rank %d, weights %s\n", group.rank(), oarlock::digest_of(oarlock::unique_parameters(*net)).c_str());
}

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? std::stol(argv[1]) : 200);
  } catch (...) {
    const oarlock::Error error = oarlock::to_error(std::current_exception());
    std::fprintf(stderr, "%s\n", error.message.c_str());
    return oarlock::to_int(error.code);  // 76 if a rank was lost and not replaced
  }
  return 0;
}
