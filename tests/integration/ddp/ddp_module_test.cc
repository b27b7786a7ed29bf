// DistributedDataParallel with the calls of a user's program: forward() and backward() of the loss, compared with one
// process on the joined batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <tuple>
#include <vector>

#include "common/clock.h"
#include "common/stop_flag.h"
#include "ddp/ddp.h"
#include "ddp/rendezvous.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;

constexpr int64_t kPerRank = 4;
constexpr double kTolerance = 1e-12;

// Returns two outputs; the second one does not depend on `spare` unless it is used.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    at::manual_seed(5);
    trunk = register_module("trunk", torch::nn::Linear(6, 8));
    left = register_module("left", torch::nn::Linear(8, 2));
    spare = register_module("spare", torch::nn::Linear(8, 2));
    to(at::kDouble);
  }

  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, bool use_spare = true) {
    const at::Tensor hidden = torch::tanh(trunk(x));
    return {left(hidden), use_spare ? spare(hidden) : hidden.detach()};
  }

  torch::nn::Linear trunk{nullptr};
  torch::nn::Linear left{nullptr};
  torch::nn::Linear spare{nullptr};
};
TORCH_MODULE(TwoHeads);

at::Tensor joined_batch(int step, int world_size) {
  at::manual_seed(static_cast<uint64_t>(100 + step));
  return torch::randn({kPerRank * world_size, 6}, at::kDouble);
}

at::Tensor own_part(const at::Tensor& batch, const ProcessGroup& group) {
  return batch.narrow(0, group.rank() * kPerRank, kPerRank);
}

at::Tensor loss_of(const std::tuple<at::Tensor, at::Tensor>& outputs) {
  return std::get<0>(outputs).pow(2).mean() + std::get<1>(outputs).abs().mean();
}

torch::optim::SGD optimizer_of(const torch::nn::Module& module) {
  return torch::optim::SGD(module.parameters(), torch::optim::SGDOptions(0.1));
}

// Trains with `options`, accumulating over `accumulate` batches, and expects the parameters of one process.
void expect_joined_training(const ProcessGroup& group, const DdpOptions& options, int accumulate = 1,
                            bool use_spare = true) {
  TwoHeads net;
  TwoHeads reference;
  DistributedDataParallel model(net, group, options);
  torch::optim::SGD optimizer = optimizer_of(*net);
  torch::optim::SGD reference_optimizer = optimizer_of(*reference);
  for (int i = 0; i < 4 * accumulate; ++i) {
    const at::Tensor batch = joined_batch(i, group.world_size());
    loss_of(reference->forward(batch, use_spare)).backward();
    const bool last = (i + 1) % accumulate == 0;
    if (last) {
      loss_of(model.forward(own_part(batch, group), use_spare)).backward();
      optimizer.step();
      if (options.gradient_as_bucket_view) {
        model.zero_grad();
      } else {
        optimizer.zero_grad();
      }
      reference_optimizer.step();
      reference_optimizer.zero_grad();
    } else {
      const auto no_sync = model.no_sync();
      loss_of(model.forward(own_part(batch, group), use_spare)).backward();
    }
  }
  const auto expected = reference->parameters();
  const auto actual = net->parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LE((actual[i] - expected[i]).abs().max().item<double>(), kTolerance) << i;
  EXPECT_TRUE(equal_on_all_ranks(unique_parameters(*net), group));
}

TEST(DdpModule, EqualsOneProcessWithJoinedBatch) {
  for (const bool shared_memory : {true, false}) {
    for (const bool static_graph : {true, false}) {
      SCOPED_TRACE(testing::Message() << "shared memory " << shared_memory << ", static graph " << static_graph);
      run_ranks(2, [&](const ProcessGroup& group) {
        expect_joined_training(group, {.static_graph = static_graph, .shared_memory = shared_memory});
      });
    }
  }
}

TEST(DdpModule, AccumulatesGradientsUnderNoSync) {
  run_ranks(2, [](const ProcessGroup& group) { expect_joined_training(group, {}, /*accumulate=*/3); });
}

TEST(DdpModule, GradientsMayBeViewsOfBuckets) {
  run_ranks(2, [](const ProcessGroup& group) { expect_joined_training(group, {.gradient_as_bucket_view = true}); });
}

TEST(DdpModule, FindsUnusedParameters) {
  run_ranks(2, [](const ProcessGroup& group) {
    expect_joined_training(group, {.find_unused_parameters = true}, /*accumulate=*/1, /*use_spare=*/false);
  });
}

// Its parameters have no gradient, but are not unused: the output depends on them.
TEST(DdpModule, TheLossNeedNotUseAllOutputs) {
  run_ranks(2, [](const ProcessGroup& group) {
    TwoHeads net;
    DistributedDataParallel model(net, group, {.find_unused_parameters = true});
    const at::Tensor joined = joined_batch(0, 2);
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      std::get<0>(model.forward(own_part(joined, group))).pow(2).mean().backward();
    }
    TwoHeads reference;
    std::get<0>(reference->forward(joined)).pow(2).mean().backward();
    EXPECT_LT((net->left->weight.grad() - reference->left->weight.grad()).abs().max().item<double>(), kTolerance);
    EXPECT_LT((net->trunk->weight.grad() - reference->trunk->weight.grad()).abs().max().item<double>(), kTolerance);
  });
}

TEST(DdpModule, AStaticGraphIsRecordedByTheFirstBackwardPass) {
  run_ranks(2, [](const ProcessGroup& group) {
    TwoHeads net;
    DistributedDataParallel model(net, group, {.static_graph = true});
    const at::Tensor joined = joined_batch(0, 2);
    model.forward(own_part(joined, group));  // the program looks at the outputs only
    loss_of(model.forward(own_part(joined, group))).backward();
    TwoHeads reference;
    loss_of(reference->forward(joined)).backward();
    EXPECT_LT((net->left->weight.grad() - reference->left->weight.grad()).abs().max().item<double>(), kTolerance);
  });
}

TEST(DdpModule, NextForwardNamesUnusedParameters) {
  run_ranks(2, [](const ProcessGroup& group) {
    TwoHeads net;
    DistributedDataParallel model(net, group);
    const at::Tensor batch = own_part(joined_batch(0, 2), group);
    loss_of(model.forward(batch, /*use_spare=*/false)).backward();
    try {
      model.forward(batch);
      FAIL() << "nothing was thrown";
    } catch (const ErrorException& error) {
      EXPECT_EQ(error.error().code, ExitCode::kConfig);
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("'spare.weight', 'spare.bias'"),
                                               testing::HasSubstr("find_unused_parameters to true")));
    }
  });
}

TEST(DdpModule, NamesOnlyParametersWithoutGradientAfterZeroGrad) {
  run_ranks(2, [](const ProcessGroup& group) {
    TwoHeads net;
    DistributedDataParallel model(net, group);
    const at::Tensor batch = own_part(joined_batch(0, 2), group);
    loss_of(model.forward(batch, /*use_spare=*/false)).backward();
    model.zero_grad();
    try {
      model.forward(batch);
      FAIL() << "nothing was thrown";
    } catch (const ErrorException& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("does not depend on 'spare.weight', 'spare.bias', so"));
    }
  });
}

struct SparseImpl : torch::nn::Module {
  explicit SparseImpl(bool sparse = true) {
    at::manual_seed(5);
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(sparse)));
    head = register_module("head", torch::nn::Linear(3, 2));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return head(table(x)); }

  torch::nn::Embedding table{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Sparse);

// The ranks use different rows, one of them twice.
at::Tensor own_rows(int rank, int step) { return torch::tensor({rank, 4 + step, 4 + step, 9 - rank}, at::kLong); }

TEST(DdpModule, AveragesSparseGradients) {
  for (const bool static_graph : {false, true}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      Sparse net;
      DistributedDataParallel model(net, group, {.static_graph = static_graph});
      EXPECT_FALSE(model.uses_shared_memory());
      torch::optim::SGD optimizer = optimizer_of(*net);
      Sparse reference(/*sparse=*/false);
      torch::optim::SGD reference_optimizer = optimizer_of(*reference);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        model.forward(own_rows(group.rank(), step)).pow(2).mean().backward();
        EXPECT_TRUE(net->table->weight.grad().is_sparse());
        optimizer.step();
        reference_optimizer.zero_grad();
        for (int rank = 0; rank < 2; ++rank) (reference->forward(own_rows(rank, step)).pow(2).mean() / 2).backward();
        reference_optimizer.step();
      }
      const auto expected = reference->parameters();
      const auto actual = net->parameters();
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_LE((actual[i] - expected[i]).abs().max().item<double>(), kTolerance) << i;
    });
  }
}

TEST(DdpModule, CompressionRejectsSparseGradients) {
  run_ranks(2, [](const ProcessGroup& group) {
    try {
      const DistributedDataParallel model(Sparse(), group, {.comm_hook = CommHook::kFp16});
      FAIL() << "nothing was thrown";
    } catch (const ErrorException& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("sparse gradients of 'table.weight'; set comm_hook to none"));
    }
  });
}

// Returns its parameter, a leaf of the graph.
struct LeafImpl : torch::nn::Module {
  LeafImpl() { scale = register_parameter("scale", torch::ones({2}, at::kDouble)); }
  at::Tensor forward() { return scale; }
  at::Tensor scale;
};
TORCH_MODULE(Leaf);

TEST(DdpModule, LeavesNoHookOnReturnedParameter) {
  run_ranks(2, [](const ProcessGroup& group) {
    for (const bool find_unused : {false, true}) {
      Leaf net;
      DistributedDataParallel model(net, group, {.find_unused_parameters = find_unused});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        (model.forward() * (group.rank() + 1)).sum().backward();
        EXPECT_TRUE(net->scale.grad().eq(1.5).all().item<bool>());
      }
      const auto* meta = torch::autograd::impl::get_autograd_meta(net->scale);
      EXPECT_TRUE(meta->hooks_.empty());
      EXPECT_EQ(meta->cpp_hooks_list_, nullptr);
    }
  });
}

// Averages with `hook`, and expects twice the gradients of one process.
template <typename Hook>
void expect_doubled_gradients(const ProcessGroup& group, const Hook& hook) {
  TwoHeads net;
  DistributedDataParallel model(net, group, {.bucket_cap_mb = 1e-4});
  model.register_comm_hook(hook);
  EXPECT_FALSE(model.uses_shared_memory());
  for (int step = 0; step < 3; ++step) {  // the buckets are rebuilt after the first one
    model.zero_grad();
    const at::Tensor joined = joined_batch(step, 2);
    loss_of(model.forward(own_part(joined, group))).backward();
    TwoHeads reference;
    loss_of(reference->forward(joined)).backward();
    const auto expected = reference->parameters();
    const auto actual = net->parameters();
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE((actual[i].grad() - 2 * expected[i].grad()).abs().max().item<double>(), kTolerance) << i;
  }
  EXPECT_THROW(model.register_comm_hook(hook), ErrorException);
}

TEST(CommHookFunction, MayReturnTensor) {
  run_ranks(2, [](const ProcessGroup& group) {
    std::vector<size_t> order;
    expect_doubled_gradients(group, [&](c10d::GradBucket& bucket) {
      order.push_back(bucket.getIndex());
      const at::Tensor sum = bucket.getBuffer().clone();
      group.all_reduce(sum);
      return sum;
    });
    EXPECT_GT(order.size(), 3U) << "one bucket in each step";
    EXPECT_EQ(order.front(), 0U);
  });
}

TEST(CommHookFunction, MayReturnFuture) {
  run_ranks(2, [](const ProcessGroup& group) {
    expect_doubled_gradients(group, [&](c10d::GradBucket& bucket) {
      std::vector<at::Tensor> sum = {bucket.getBuffer()};
      return group.c10d()->allreduce(sum)->getFuture();
    });
  });
}

TEST(CommHookFunction, ExceptionIsThatOfBackward) {
  run_ranks(2, [](const ProcessGroup& group) {
    TwoHeads net;
    DistributedDataParallel model(net, group);
    model.register_comm_hook(
        [](c10d::GradBucket&) -> at::Tensor { throw ErrorException({ExitCode::kDataErr, "a gradient is too large"}); });
    EXPECT_THROW(loss_of(model.forward(own_part(joined_batch(0, 2), group))).backward(), ErrorException);
  });
}

TEST(CommHookFunction, IsRejectedWithCompressionOrAfterForward) {
  run_ranks(2, [](const ProcessGroup& group) {
    const auto hook = [](c10d::GradBucket& bucket) { return bucket.getBuffer(); };
    DistributedDataParallel compressed(TwoHeads(), group, {.comm_hook = CommHook::kFp16});
    EXPECT_THROW(compressed.register_comm_hook(hook), ErrorException);
    DistributedDataParallel begun(TwoHeads(), group);
    begun.forward(own_part(joined_batch(0, 2), group));
    EXPECT_THROW(begun.register_comm_hook(hook), ErrorException);
  });
}

TEST(DdpModule, ForwardWithoutGradientsNeedsNoBackward) {
  run_ranks(2, [](const ProcessGroup& group) {
    TwoHeads net;
    DistributedDataParallel model(net, group);
    const at::Tensor batch = own_part(joined_batch(0, 2), group);
    {
      const at::NoGradGuard no_grad;
      if (group.rank() == 0) {  // the other rank takes no part, because the module has no buffers
        EXPECT_FALSE(std::get<0>(model.forward(batch)).requires_grad());
      }
    }
    loss_of(model.forward(batch)).backward();
    EXPECT_TRUE(net->left->weight.grad().defined());
  });
}

TEST(DdpModule, StartsFromParametersOfRank0) {
  run_ranks(2, [](const ProcessGroup& group) {
    auto net = std::make_shared<TwoHeadsImpl>();
    if (group.rank() == 1) net->left->weight.data().add_(1);
    const DistributedDataParallel model(net, group);
    EXPECT_TRUE(equal_on_all_ranks(unique_parameters(*net), group));
  });
}

TEST(DdpModule, ThrowsIfModulesDiffer) {
  run_ranks(2, [](const ProcessGroup& group) {
    torch::nn::Linear net(group.rank() == 0 ? 3 : 4, 2);
    EXPECT_THROW(DistributedDataParallel(net, group), ErrorException);
  });
}

TEST(DdpModule, OneRankNeedsNoGroup) {
  const ProcessGroup alone;
  expect_joined_training(alone, {});
}

TEST(ProcessGroup, ReducesTensorsInPlace) {
  run_ranks(3, [](const ProcessGroup& group) {
    const at::Tensor sum = torch::full({2}, group.rank() + 1.0);
    group.all_reduce(sum);
    EXPECT_TRUE(sum.eq(6).all().item<bool>());
    const at::Tensor least = torch::full({2}, group.rank() + 1.0);
    group.all_reduce(least, c10d::ReduceOp::MIN);
    EXPECT_TRUE(least.eq(1).all().item<bool>());
  });
}

TEST(InitProcessGroup, RejectsMissingAddress) {
  EXPECT_THROW(init_process_group({.rank = 1, .world_size = 2}), ErrorException);
  EXPECT_THROW(init_process_group({.rank = 2, .world_size = 2, .master_addr = "127.0.0.1", .master_port = 1}),
               ErrorException);
  EXPECT_EQ(init_process_group(RankEnvironment{}).group.world_size(), 1);
}

// The last tests, because the ranks of the others are forked from this process.

// Rank 1 exits between the rendezvous and the connection.
TEST(InitProcessGroup, ReportsRankThatWasLostWhileConnecting) {
  const PortReservation port = test::reserve_ports();
  const auto lost = std::async(std::launch::async, [&] {
    static const RealClock& clock = *new RealClock;
    RendezvousOptions options;
    options.rank = 1;
    options.world_size = 2;
    options.master_addr = "127.0.0.1";
    options.master_port = port.first();
    options.device = "cpu";
    return rendezvous(options, std::make_shared<StopFlag>(), clock).has_value();
  });
  try {
    init_process_group({.rank = 0, .world_size = 2, .master_addr = "127.0.0.1", .master_port = port.first()},
                       {.connect_timeout = std::chrono::seconds(3)});
    FAIL() << "nothing was thrown";
  } catch (const ErrorException& error) {
    EXPECT_EQ(error.error().code, ExitCode::kPeerLost) << error.what();
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
  }
}

TEST(InitProcessGroup, ConnectsDescribedRanks) {
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);  // tests/support/thread_ranks.h
  const PortReservation port = test::reserve_ports();
  const auto connect = [&](int rank) {
    return std::async(std::launch::async, [rank, port = port.first()] {
      const DistributedContext ranks =
          init_process_group({.rank = rank, .world_size = 2, .master_addr = "127.0.0.1", .master_port = port});
      return ranks.group.all_gather(int64_t{10 + ranks.group.rank()});
    });
  };
  auto zero = connect(0);
  auto one = connect(1);
  EXPECT_THAT(zero.get(), testing::ElementsAre(10, 11));
  EXPECT_THAT(one.get(), testing::ElementsAre(10, 11));
}

}  // namespace
}  // namespace oarlock
