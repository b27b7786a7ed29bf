// Connects the ranks that an MPI launcher has started, by the communicator of the program, and trains one linear layer.
// docs/guides/ddp.md explains it.
//
//   mpirun -n 2 mpi
#include <mpi.h>
#include <oarlock/ddp.h>
#include <oarlock/ddp_mpi.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdio>

void train() {
  const oarlock::DistributedContext ranks = oarlock::init_process_group_from_mpi(MPI_COMM_WORLD);
  const oarlock::ProcessGroup& group = ranks.group;
  torch::manual_seed(1);
  const torch::Tensor samples = torch::randn({64, 4});
  torch::nn::Linear net(4, 1);
  oarlock::DistributedDataParallel model(net, group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const int64_t per_rank = samples.size(0) / group.world_size();
  const torch::Tensor own = samples.narrow(0, group.rank() * per_rank, per_rank);
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    (model.forward(own) - own.sum(1, /*keepdim=*/true)).pow(2).mean().backward();
    optimizer.step();
  }
  if (const auto equal = oarlock::check_equal_on_all_ranks(oarlock::unique_parameters(*net), group); !equal)
    throw oarlock::ErrorException(equal.error());
  std::printf("rank %d of %d, local rank %d, sum of weights %.4f\n", group.rank(), group.world_size(),
              oarlock::mpi_local_rank(MPI_COMM_WORLD), net->weight.sum().item<double>());
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  MPI_Finalize();
  return 0;
}
