// The cases of PyTorch's own tests of DistributedDataParallel, each with the test here. PyTorch 2.11 has them in
// test/distributed/test_c10d_common.py (C), test_c10d_gloo.py (G) and
// torch/testing/_internal/distributed/distributed_test.py (D).
//
// clang-format off
//   unused parameters         D test_ddp_control_flow_different_across_ranks, test_output_unused_in_loss_*,
//                             test_ddp_multiple_nested_unused_params_error, G test_global_local_unused_params_grad
//                             -> ddp_module_test FindsUnusedParameters, TheLossNeedNotUseAllOutputs,
//                             NextForwardNamesUnusedParameters; distributed_model_test
//   tied parameters           D test_ddp_shared_grad_acc_unused_params -> SharedParameterMayBeUnused
//   static graph              D test_static_graph_api_cpu -> ddp_module_test, distributed_model_test
//   no_sync, accumulation     D test_accumulate_gradients_no_sync* -> ddp_module_test AccumulatesGradientsUnderNoSync,
//                             distributed_model_test NoSync*, ViewsAccumulateUnderNoSync
//   gradients as bucket views D test_DistributedDataParallelCPU_grad_is_view
//                             -> ddp_module_test GradientsMayBeViewsOfBuckets, ViewsAccumulateUnderNoSync
//   buffers                   D test_ddp_broadcast_buffer -> BuffersAreThoseOfRank0UnlessSwitchedOff
//   mixed parameter types     G ReducerTest.test_multi_dtype_* -> ParametersMayHaveDifferentTypes
//   double backward           -> GradientPenaltyIsAveraged
//   several forward passes    D test_static_graph_multi_forward -> ForwardMayRunTwiceBeforeBackward
//   several backward passes   G test_multiple_outputs_multiple_backward* -> OutputsMayHaveTheirOwnBackward
//   reentrant checkpointing   C test_ddp_checkpointing_once, test_ddp_checkpointing_twice_static_graph
//                             -> ReentrantCheckpoint*; checkpointing that is not reentrant: checkpointed_test
//   uneven inputs             D test_ddp_uneven_inputs* -> ddp_join_test
//   no features               D test_ddp_zero_output_features -> LayersMayBeEmpty
//   different modules         D test_ddp_model_diff_* -> ddp_module_test ThrowsIfModulesDiffer
//   communication hooks       D test_ddp_hook_parity_* -> comm_hook_test
//   SyncBatchNorm             D test_DistributedDataParallel_SyncBatchNorm* -> sync_batch_norm_test
//   checkpoints               G test_save_load_checkpoint -> kill_resume_test, reduction_resume_test
// clang-format on
//
// Without a test here: D test_ddp_create_graph, because the Reducer of LibTorch fails in the second step of
// backward(create_graph = true) with several parameters; a reentrant checkpoint that runs twice without a static graph,
// whose second gradients the Reducer rejects or does not average; sparse gradients, ignored parameters, an optimizer in
// the backward pass, native mixed precision and hooks in Python, because the library does not have them; named tuples
// and dictionaries as outputs, which C++ has no equivalent of; torch.compile, pickling and the profiler of Python.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ddp/ddp.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kTolerance = 1e-12;

// Recomputes tanh(layer(input)) in a backward pass within the backward pass, as torch.utils.checkpoint does with
// use_reentrant=True: the parameters of the layer get their gradients there.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, int64_t layer) {
    context->save_for_backward({input});
    context->saved_data["layer"] = layer;
    return compute(input, layer);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::AutoGradMode enabled(true);
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({compute(input, context->saved_data["layer"].toInt())}, gradients);
    return {input.grad(), at::Tensor()};
  }
  static at::Tensor compute(const at::Tensor& input, int64_t layer) {
    return torch::tanh(reinterpret_cast<torch::nn::LinearImpl*>(layer)->forward(input));
  }
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    at::manual_seed(5);
    trunk = register_module("trunk", torch::nn::Linear(6, 6));
    head = register_module("head", torch::nn::Linear(6, 2));
    to(at::kDouble);
  }
  // Applies the trunk once, or `checkpoints` times.
  at::Tensor forward(const at::Tensor& x, int checkpoints = 0) {
    if (checkpoints == 0) return head(torch::tanh(trunk(x)));
    at::Tensor hidden = x.detach().requires_grad_();
    for (int i = 0; i < checkpoints; ++i)
      hidden = Reentrant::apply(hidden, static_cast<int64_t>(reinterpret_cast<intptr_t>(trunk.get())));
    return head(hidden);
  }
  torch::nn::Linear trunk{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

at::Tensor joined_batch(int step, const ProcessGroup& group) {
  at::manual_seed(static_cast<uint64_t>(100 + step));
  return torch::randn({4 * group.world_size(), 6}, at::kDouble);
}

at::Tensor own_part(const at::Tensor& batch, const ProcessGroup& group) { return batch.narrow(0, 4 * group.rank(), 4); }

void expect_equal_gradients(const torch::nn::Module& actual, const torch::nn::Module& expected,
                            double tolerance = kTolerance) {
  const auto parameters = actual.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    ASSERT_TRUE(parameters[item.key()].grad().defined()) << item.key();
    EXPECT_LE((parameters[item.key()].grad() - item.value().grad()).abs().max().item<double>(), tolerance)
        << item.key();
  }
}

using Forward = std::function<at::Tensor(const at::Tensor& x)>;

// Expects the gradients of `loss`, which calls the forward pass, to be those of one process with the joined batch, in
// three steps.
void expect_joined_gradients(const DdpOptions& options, int checkpoints,
                             const std::function<at::Tensor(const Forward& forward, const at::Tensor& x)>& loss) {
  run_ranks(2, [&](const ProcessGroup& group) {
    Net net;
    Net reference;
    DistributedDataParallel model(net, group, options);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      reference->zero_grad();
      const at::Tensor batch = joined_batch(step, group);
      loss([&](const at::Tensor& x) { return model.forward(x, checkpoints); }, own_part(batch, group)).backward();
      loss([&](const at::Tensor& x) { return reference->forward(x, checkpoints); }, batch).backward();
      expect_equal_gradients(*net, *reference);
    }
  });
}

at::Tensor mean_square(const Forward& forward, const at::Tensor& x) { return forward(x).pow(2).mean(); }

TEST(DdpCases, ForwardMayRunTwiceBeforeBackward) {
  for (const DdpOptions& options :
       {DdpOptions{}, DdpOptions{.static_graph = true}, DdpOptions{.shared_memory = false}}) {
    expect_joined_gradients(options, 0, [](const Forward& forward, const at::Tensor& x) {
      return (forward(x) - forward(x.flip(1))).pow(2).mean();
    });
  }
}

// The penalty of a Wasserstein GAN: the loss contains the gradient of the output, so that the backward pass
// differentiates a backward pass, which itself is not synchronized.
TEST(DdpCases, GradientPenaltyIsAveraged) {
  for (const bool shared_memory : {true, false}) {
    expect_joined_gradients({.shared_memory = shared_memory}, 0, [](const Forward& forward, const at::Tensor& x) {
      const at::Tensor input = x.detach().requires_grad_();
      const at::Tensor output = forward(input);
      const at::Tensor slope =
          torch::autograd::grad({output.sum()}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
      return output.pow(2).mean() + (slope.pow(2).sum(1) - 1).pow(2).mean();
    });
  }
}

TEST(DdpCases, ReentrantCheckpointIsAveraged) {
  for (const bool shared_memory : {false, true}) {
    expect_joined_gradients({.shared_memory = shared_memory}, 1, mean_square);
    expect_joined_gradients({.static_graph = true, .shared_memory = shared_memory}, 1, mean_square);
  }
}

TEST(DdpCases, ReentrantCheckpointMayRunTwiceInAStaticGraph) {
  for (const bool shared_memory : {false, true})
    expect_joined_gradients({.static_graph = true, .shared_memory = shared_memory}, 2, mean_square);
}

TEST(DdpCases, ViewsAccumulateUnderNoSync) {
  run_ranks(2, [](const ProcessGroup& group) {
    Net net;
    Net reference;
    DistributedDataParallel model(net, group, {.gradient_as_bucket_view = true});
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      reference->zero_grad();
      for (int part = 0; part < 3; ++part) {
        const at::Tensor batch = joined_batch(3 * step + part, group);
        reference->forward(batch).pow(2).mean().backward();
        if (part == 2) {
          model.forward(own_part(batch, group)).pow(2).mean().backward();
        } else {
          const auto no_sync = model.no_sync();
          model.forward(own_part(batch, group)).pow(2).mean().backward();
        }
      }
      expect_equal_gradients(*net, *reference);
    }
  });
}

TEST(DdpCases, BuffersAreThoseOfRank0UnlessSwitchedOff) {
  for (const bool broadcast : {true, false}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      torch::nn::BatchNorm1d net(6);
      DistributedDataParallel model(net, group, {.broadcast_buffers = broadcast});
      const auto train = [&] { model.forward(torch::randn({4, 6})).pow(2).mean().backward(); };
      train();
      net->running_mean.fill_(group.rank() + 7);
      net->eval();
      train();
      EXPECT_EQ(net->running_mean[0].item<double>(), broadcast ? 7 : group.rank() + 7);
      model.broadcast_buffers();
      EXPECT_EQ(net->running_mean[0].item<double>(), 7);
    });
  }
}

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    at::manual_seed(5);
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kDouble}) {
      weights.push_back(register_parameter("weight" + std::to_string(weights.size()), torch::randn({6, 6}).to(type)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor out = x;
    for (const at::Tensor& weight : weights) out = torch::tanh(out.to(weight.scalar_type()).mm(weight));
    return out;
  }
  std::vector<at::Tensor> weights;
};
TORCH_MODULE(Mixed);

TEST(DdpCases, ParametersMayHaveDifferentTypes) {
  for (const bool shared_memory : {true, false}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      Mixed net;
      Mixed reference;
      DistributedDataParallel model(net, group, {.shared_memory = shared_memory});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        reference->zero_grad();
        const at::Tensor batch = joined_batch(step, group);
        model.forward(own_part(batch, group)).pow(2).mean().backward();
        reference->forward(batch).pow(2).mean().backward();
        expect_equal_gradients(*net, *reference, /*tolerance=*/2e-2);  // bfloat16 has 8 bits
        std::vector<NamedTensor> gradients;
        for (const NamedTensor& item : unique_parameters(*net)) {
          EXPECT_EQ(item.tensor.grad().scalar_type(), item.tensor.scalar_type());
          gradients.push_back({item.name, item.tensor.grad()});
        }
        EXPECT_TRUE(equal_on_all_ranks(gradients, group));
      }
    });
  }
}

struct TwoNetsImpl : torch::nn::Module {
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {left(x), right(x)}; }
  Net left = register_module("left", Net());
  Net right = register_module("right", Net());
};
TORCH_MODULE(TwoNets);

TEST(DdpCases, OutputsMayHaveTheirOwnBackward) {
  run_ranks(2, [](const ProcessGroup& group) {
    TwoNets net;
    TwoNets reference;
    DistributedDataParallel model(net, group, {.shared_memory = false});
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      reference->zero_grad();
      const at::Tensor batch = joined_batch(step, group);
      const auto [left, right] = model.forward(own_part(batch, group));
      left.pow(2).mean().backward();
      right.pow(2).mean().backward();
      const auto expected = reference->forward(batch);
      (expected.first.pow(2).mean() + expected.second.pow(2).mean()).backward();
      expect_equal_gradients(*net, *reference);
    }
  });
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    at::manual_seed(5);
    used = register_module("used", torch::nn::Linear(6, 2));
    spare = register_module("spare", torch::nn::Linear(6, 2));
    bias = register_parameter("bias", spare->bias);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return used(x); }
  torch::nn::Linear used{nullptr};
  torch::nn::Linear spare{nullptr};
  at::Tensor bias;
};
TORCH_MODULE(Tied);

TEST(DdpCases, SharedParameterMayBeUnused) {
  for (const bool static_graph : {false, true}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      Tied net;
      Tied reference;
      DistributedDataParallel model(net, group, {.find_unused_parameters = true, .static_graph = static_graph});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        reference->zero_grad();
        const at::Tensor batch = joined_batch(step, group);
        model.forward(own_part(batch, group)).pow(2).mean().backward();
        reference->forward(batch).pow(2).mean().backward();
        expect_equal_gradients(*net->used, *reference->used);
      }
    });
  }
}

TEST(DdpCases, LayersMayBeEmpty) {
  run_ranks(2, [](const ProcessGroup& group) {
    torch::nn::Linear net(6, 0);
    DistributedDataParallel model(net, group);
    EXPECT_EQ(model.forward(torch::randn({4, 6})).numel(), 0);
  });
}

}  // namespace
}  // namespace oarlock
