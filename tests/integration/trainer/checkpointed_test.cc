// Activation checkpointing: bitwise the same gradients as without it, in one process and under DDP, with less memory.
#include "trainer/nn/activation_checkpoint.h"

#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "ddp/distributed_data_parallel_base.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;
using testing::HasSubstr;

constexpr int64_t kWidth = 32;

// Blocks of Linear, GELU, dropout and Linear with a residual connection, with or without activation checkpointing.
class Stack final : public torch::nn::Module {
 public:
  Stack(int64_t blocks, int64_t width) {
    for (int64_t i = 0; i < blocks; ++i) {
      torch::nn::ModuleList block(torch::nn::Linear(width, 4 * width), torch::nn::Linear(4 * width, width));
      blocks_.push_back(register_module("block" + std::to_string(i), block));
    }
  }

  at::Tensor forward(at::Tensor x, bool checkpoint, size_t used) {
    for (size_t i = 0; i < used; ++i) {
      const auto block = [this, i](const at::Tensor& input) { return run(*blocks_[i], input); };
      x = checkpoint ? checkpoint_activations(*blocks_[i], block, x) : block(x);
    }
    return x;
  }
  at::Tensor forward(const at::Tensor& x, bool checkpoint) { return forward(x, checkpoint, blocks_.size()); }

 private:
  static at::Tensor run(const torch::nn::ModuleListImpl& block, const at::Tensor& x) {
    const at::Tensor hidden = torch::gelu(block[0]->as<torch::nn::Linear>()->forward(x));
    return x + block[1]->as<torch::nn::Linear>()->forward(torch::dropout(hidden, 0.3, /*train=*/true));
  }

  std::vector<torch::nn::ModuleList> blocks_;
};

std::shared_ptr<Stack> seeded_stack(int64_t blocks = 4, int64_t width = kWidth) {
  at::manual_seed(3);
  return std::make_shared<Stack>(blocks, width);
}

at::Tensor loss_of(Stack& stack, const at::Tensor& x, bool checkpoint) {
  at::manual_seed(11);  // of the dropout
  return stack.forward(x, checkpoint).pow(2).mean();
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.equal(b));
}

void expect_equal_gradients(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto others = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(same(item.value().grad(), others[item.key()].grad())) << item.key();
  }
}

// With two ranks, every DDP option, and blocks that one rank or no rank uses, the gradients with activation
// checkpointing equal those without. Must be the first test, because its processes are forked.
TEST(Checkpointed, DdpGradientsAreThePlainOnes) {
  run_ranks(2, [](const ProcessGroup& group) {
    for (const bool find_unused : {false, true}) {
      for (const bool static_graph : {false, true}) {
        if (find_unused && static_graph) continue;
        DdpOptions config;
        config.find_unused_parameters = find_unused;
        config.static_graph = static_graph;
        config.bucket_cap_mb = 0.02;  // several buckets
        const auto plain = seeded_stack();
        const auto saving = seeded_stack();
        auto plain_model = DistributedDataParallelBase::create(plain, group, config);
        auto saving_model = DistributedDataParallelBase::create(saving, group, config);
        ASSERT_TRUE(plain_model && saving_model);
        for (int step = 0; step < 3; ++step) {
          const size_t used = find_unused ? static_cast<size_t>(2 + group.rank()) : 4;  // no rank uses the last block
          at::manual_seed(static_cast<uint64_t>(50 + step + 10 * group.rank()));
          const at::Tensor x = torch::randn({6, kWidth});
          for (const bool checkpoint : {false, true}) {
            DistributedDataParallelBase& model = checkpoint ? **saving_model : **plain_model;
            Stack& stack = checkpoint ? *saving : *plain;
            model.zero_grad();
            const at::Tensor loss = model.forward([&] {
              at::manual_seed(11);
              return stack.forward(x, checkpoint, used).pow(2).mean();
            });
            model.backward(loss);
          }
          for (const auto& item : plain->named_parameters()) {
            const at::Tensor other = saving->named_parameters()[item.key()].grad();
            EXPECT_TRUE(same(item.value().grad(), other))
                << item.key() << " find_unused " << find_unused << " static_graph " << static_graph << " step " << step;
          }
        }
      }
    }
  });
}

TEST(Checkpointed, GradientsAreThePlainOnesToTheBit) {
  at::manual_seed(5);
  for (const bool input_gradient : {false, true}) {
    const at::Tensor x = torch::randn({8, kWidth}, torch::requires_grad(input_gradient));
    const auto plain = seeded_stack();
    const auto saving = seeded_stack();
    const at::Tensor expected = loss_of(*plain, x, false);
    expected.backward();
    const at::Tensor x_gradient = x.grad().defined() ? x.grad().clone() : at::Tensor();
    x.mutable_grad() = at::Tensor();
    const at::Tensor loss = loss_of(*saving, x, true);
    const at::Tensor drawn = torch::rand(4);  // the random stream continues as in the plain run ...
    loss.backward();
    const at::Tensor after = torch::rand(4);  // ... and backward does not change it
    EXPECT_TRUE(loss.equal(expected));
    expect_equal_gradients(*plain, *saving);
    EXPECT_TRUE(same(x.grad(), x_gradient));
    (void)loss_of(*plain, x, false);
    EXPECT_TRUE(torch::rand(4).equal(drawn));
    EXPECT_TRUE(torch::rand(4).equal(after));
  }
}

TEST(Checkpointed, AutocastIsInBackwardAsInForward) {
  const at::Tensor x = torch::randn({8, kWidth});
  const auto plain = seeded_stack();
  const auto saving = seeded_stack();
  for (const bool checkpoint : {false, true}) {
    Stack& stack = checkpoint ? *saving : *plain;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
    const at::Tensor loss = loss_of(stack, x, checkpoint);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    loss.backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  expect_equal_gradients(*plain, *saving);
  const auto full = seeded_stack();
  loss_of(*full, x, false).backward();
  EXPECT_FALSE(same(full->parameters()[0].grad(), plain->parameters()[0].grad()));  // bf16 was used at all
}

// Records the largest number of bytes that the CPU allocator held while this object exists.
class PeakMemory final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t change, size_t, size_t, c10::Device) override {
    now_ += change;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

int64_t peak_of_step(bool checkpoint) {
  constexpr int64_t kBlocks = 8;
  const auto stack = seeded_stack(kBlocks, 64);
  loss_of(*stack, torch::randn({1, 64}), checkpoint).backward();  // makes the gradients
  const at::Tensor x = torch::randn({512, 64});
  const auto memory = std::make_shared<PeakMemory>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  loss_of(*stack, x, checkpoint).backward();
  return memory->peak();
}

TEST(Checkpointed, TakesLessMemory) {
  const int64_t plain = peak_of_step(false);
  const int64_t saving = peak_of_step(true);
  // A block keeps 13 times its input: itself, and 4 each before GELU, of dropout's noise, and after it. Checkpointed:
  // its input, and one block at a time all of it.
  EXPECT_GT(plain, 8 * 9 * 512 * 64 * 4);
  EXPECT_LT(saving, 0.4 * static_cast<double>(plain)) << saving << " of " << plain;
  RecordProperty("bytes_plain", std::to_string(plain));
  RecordProperty("bytes_checkpointed", std::to_string(saving));
}

TEST(Checkpointed, ACheckpointInsideACheckpoint) {
  const at::Tensor x = torch::randn({8, kWidth});
  const auto plain = seeded_stack();
  const auto saving = seeded_stack();
  loss_of(*plain, x, false).backward();
  at::manual_seed(11);
  checkpoint_activations(
      *saving, [&](const at::Tensor& input) { return saving->forward(input, true); }, x)
      .pow(2)
      .mean()
      .backward();
  expect_equal_gradients(*plain, *saving);
}

TEST(Checkpointed, SeveralInputsAndOutputsSomeWithoutGradient) {
  torch::nn::Linear layer(3, 3);
  const at::Tensor x = torch::randn({2, 3}, torch::requires_grad());
  const at::Tensor index = torch::tensor({1, 0});
  const auto function = [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    const at::Tensor y = layer(in[0]).index_select(0, in[1]);
    return {y, y.argmax(1), y * 2};
  };
  const std::vector<at::Tensor> out = checkpoint_activations(*layer, function, {x, index});
  EXPECT_FALSE(out[1].requires_grad());
  const auto gradients = torch::autograd::grad({out[2].sum()}, {x, layer->weight});  // out[0] gets none
  const auto expected = torch::autograd::grad({function({x, index})[2].sum()}, {x, layer->weight});
  EXPECT_TRUE(gradients[0].equal(expected[0]));
  EXPECT_TRUE(gradients[1].equal(expected[1]));
}

TEST(Checkpointed, IsAPlainCallWithoutGradients) {
  const auto stack = seeded_stack();
  const at::NoGradGuard no_gradients;
  const at::Tensor x = torch::randn({2, kWidth});
  EXPECT_TRUE(loss_of(*stack, x, true).equal(loss_of(*stack, x, false)));
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Checkpointed, ReportsUnsupportedUses) {
  torch::nn::Linear mine(3, 3);
  torch::nn::Linear other(3, 3);
  const at::Tensor x = torch::randn({2, 3}, torch::requires_grad());
  const at::Tensor stray = checkpoint_activations(*mine, [&](const at::Tensor& in) { return other(mine(in)); }, x);
  EXPECT_THAT(error_of([&] { stray.sum().backward(); }), HasSubstr("neither a parameter of the module nor"));

  const at::Tensor once = checkpoint_activations(*mine, [&](const at::Tensor& in) { return mine(in).pow(2); }, x);
  EXPECT_THAT(error_of([&] { (void)torch::autograd::grad({once.sum()}, {x}, {}, true, /*create_graph=*/true); }),
              HasSubstr("backward of backward"));

  const at::Tensor changed = checkpoint_activations(*mine, [&](const at::Tensor& in) { return mine(in).pow(2); }, x);
  {
    const at::NoGradGuard no_gradients;
    mine->weight.mul_(2);
  }
  EXPECT_THAT(error_of([&] { changed.sum().backward(); }), HasSubstr("modified by an inplace operation"));
}

}  // namespace
}  // namespace oarlock
