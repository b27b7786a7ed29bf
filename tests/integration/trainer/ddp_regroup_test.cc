// DistributedDataParallelBase moves to a new group: the order in which gradients are summed continues, also if a rank
// is lost before the new group has completed a step.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/distributed_data_parallel_base.h"
#include "ddp/library_errors.h"
#include "ddp/process_group.h"
#include "ddp/reducer.h"
#include "tests/support/thread_ranks.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 3;                // a sum of three depends on its order
constexpr double kSmallBuckets = 0.002;  // MiB: each layer has its own buckets

class Layers final : public torch::nn::Module {
 public:
  Layers() {
    for (int i = 0; i < kLayers; ++i)
      layers_.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
  }

  at::Tensor loss(const at::Tensor& x) {
    at::Tensor out = x;
    // The gradients become ready in another order than that of the parameters.
    for (const int i : {2, 0, 3, 1}) out = torch::tanh(layers_[static_cast<size_t>(i)](out));
    return out.square().mean();
  }

  static constexpr int kWidth = 24;

 private:
  static constexpr int kLayers = 4;
  std::vector<torch::nn::Linear> layers_;
};

at::Tensor batch_of(int rank, int step) {
  const at::Tensor values = torch::arange(8 * Layers::kWidth, at::kFloat).view({8, Layers::kWidth});
  return torch::sin(values * (0.37F + static_cast<float>(rank)) + static_cast<float>(step));
}

struct Rank {
  ProcessGroup group;
  std::shared_ptr<Layers> module = std::make_shared<Layers>();
  std::unique_ptr<DistributedDataParallelBase> model;

  void create() {
    DdpOptions config;
    config.bucket_cap_mb = kSmallBuckets;
    config.shared_memory = false;  // its sums have the order of the ranks
    auto created = DistributedDataParallelBase::create(module, group, config);
    ASSERT_TRUE(created) << created.error().message;
    model = *std::move(created);
  }

  void step(int index) {
    model->backward(model->forward([&] { return module->loss(batch_of(group.rank(), index)); }));
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : module->parameters()) parameter.sub_(parameter.grad(), /*alpha=*/0.5);
    model->zero_grad();
  }

  std::string bits() const {
    std::string out;
    for (const at::Tensor& parameter : module->parameters())
      out.append(static_cast<const char*>(parameter.const_data_ptr()), parameter.nbytes());
    return out;
  }
};

// The ranks of a job, each on its own thread.
class Ranks {
 public:
  Ranks() {
    for (int rank = 0; rank < kRanks; ++rank) add(rank);
    at::manual_seed(3);
    const Layers seeded;
    const at::NoGradGuard no_grad;
    for (const auto& rank : ranks_) {
      for (const auto& item : rank->module->named_parameters())
        at::Tensor(item.value()).copy_(seeded.named_parameters()[item.key()]);
    }
  }

  Rank& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  void on_each(const std::function<void(Rank&)>& call, int count = kRanks) {
    std::vector<std::future<void>> calls;
    for (int rank = 0; rank < count; ++rank)
      calls.push_back(std::async(std::launch::async, call, std::ref((*this)[rank])));
    for (auto& one : calls) one.get();
  }

  // Connects the first ranks to a new group.
  void connect(int world_size = kRanks) {
    std::vector<ProcessGroup> groups = test::connect_ranks(world_size);
    for (int rank = 0; rank < world_size; ++rank) (*this)[rank].group = std::move(groups[static_cast<size_t>(rank)]);
  }

  void begin() {
    connect();
    on_each([](Rank& rank) { rank.create(); });
  }

  void train(int first, int last) {
    on_each([=](Rank& rank) {
      for (int step = first; step < last; ++step) rank.step(step);
    });
  }

  // Returns the state of each rank.
  std::vector<std::string> leave(bool steps_completed) {
    std::vector<std::string> out;
    for (const auto& rank : ranks_) {
      rank->group.leave();
      rank->model->leave(steps_completed);
      rank->group = ProcessGroup::unconnected(rank->group.rank(), kRanks, at::kCPU);
      out.push_back(rank->model->state_for_joining());
    }
    return out;
  }

  // A new process, with the parameters that it has received from another rank.
  void replace(int rank) {
    const std::shared_ptr<Layers> before = (*this)[rank].module;
    ranks_[static_cast<size_t>(rank)] = unconnected(rank);
    (*this)[rank].create();
    const at::NoGradGuard no_grad;
    for (const auto& item : (*this)[rank].module->named_parameters())
      at::Tensor(item.value()).copy_(before->named_parameters()[item.key()]);
  }

  // The last rank is lost while the others join its group.
  void fail_to_join(const std::string& state) {
    connect();
    on_each([&](Rank& rank) {
      if (rank.group.rank() == kRanks - 1) return rank.group.leave();
      try {
        static_cast<void>(rank.model->join(state));
        ADD_FAILURE() << "rank " << rank.group.rank() << " has joined";
      } catch (...) {
        EXPECT_EQ(to_error(std::current_exception()).code, ExitCode::kPeerLost);
      }
    });
  }

  void join(const std::string& state) {
    connect();
    on_each([&](Rank& rank) { EXPECT_TRUE(rank.model->join(state)); });
  }

  std::vector<std::string> bits() {
    std::vector<std::string> out;
    for (const auto& rank : ranks_) out.push_back(rank->bits());
    return out;
  }

 private:
  static std::unique_ptr<Rank> unconnected(int rank) {
    return std::make_unique<Rank>(ProcessGroup::unconnected(rank, kRanks, at::kCPU));
  }
  void add(int rank) { ranks_.push_back(unconnected(rank)); }

  std::vector<std::unique_ptr<Rank>> ranks_;
};

constexpr int kSteps = 6;

// The parameters of a run in which no rank is lost.
std::string undisturbed() {
  Ranks ranks;
  ranks.begin();
  ranks.train(0, kSteps);
  EXPECT_THAT(ranks.bits(), Each(ranks[0].bits()));
  return ranks[0].bits();
}

TEST(DdpRegroup, ContinuesTheOrderOfTheSums) {
  for (const int lost_at : {1, 2, 4}) {  // the buckets are rebuilt in the second step
    Ranks ranks;
    ranks.begin();
    ranks.train(0, lost_at);
    const std::string state = ranks.leave(/*steps_completed=*/true)[0];
    ranks.join(state);
    ranks.train(lost_at, kSteps);
    EXPECT_THAT(ranks.bits(), Each(undisturbed())) << "lost after step " << lost_at;
  }
}

TEST(DdpRegroup, OtherOrderHasOtherBits) {
  Ranks ranks;
  ranks.begin();
  ranks.train(0, 4);
  ranks.leave(/*steps_completed=*/true);
  ranks.join("");
  ranks.train(4, kSteps);
  EXPECT_NE(ranks[0].bits(), undisturbed()) << "the other tests prove nothing with this model";
}

// Rank 0 may save a checkpoint after it has left the group.
TEST(DdpRegroup, ReductionStateRemainsAfterLeaving) {
  Ranks first_step;
  first_step.begin();
  first_step.train(0, 1);
  first_step.leave(/*steps_completed=*/true);
  EXPECT_FALSE(first_step[0].model->is_reduction_state_known()) << "the ranks choose the buckets together";
  Ranks ranks;
  ranks.begin();
  ranks.train(0, 2);
  ranks.on_each([](Rank& rank) { rank.model->synchronize_reduction_state(); });
  const nlohmann::json before = ranks[0].model->reduction_state().values;
  ranks.leave(/*steps_completed=*/true);
  EXPECT_TRUE(ranks[0].model->is_reduction_state_known());
  EXPECT_EQ(ranks[0].model->reduction_state().values, before);
}

// Each of the others may be the next donor, also one that is new.
TEST(DdpRegroup, ContinuesAfterALossWhileTheRanksJoin) {
  Ranks ranks;
  ranks.begin();
  ranks.train(0, 4);
  const std::string state = ranks.leave(/*steps_completed=*/true)[1];
  EXPECT_THAT(ranks.leave(/*steps_completed=*/true), Each(state)) << "lost while the ranks connect";
  ranks.replace(0);
  ranks.fail_to_join(state);
  const std::vector<std::string> states = ranks.leave(/*steps_completed=*/false);
  EXPECT_EQ(states[0], state) << "of the new rank";
  EXPECT_EQ(states[1], state);
  ranks.replace(kRanks - 1);
  ranks.join(states[0]);
  ranks.train(4, kSteps);
  EXPECT_THAT(ranks.bits(), Each(undisturbed()));
}

// The group was smaller meanwhile, but has completed no step.
TEST(DdpRegroup, ContinuesAfterASmallerGroupWithoutAStep) {
  Ranks ranks;
  ranks.begin();
  ranks.train(0, 4);
  const std::string state = ranks.leave(/*steps_completed=*/true)[0];
  ranks.connect(kRanks - 1);
  ranks.on_each([&](Rank& rank) { EXPECT_TRUE(rank.model->join(state)); }, kRanks - 1);
  const std::vector<std::string> states = ranks.leave(/*steps_completed=*/false);
  EXPECT_EQ(states[0], state);
  ranks.join(states[0]);
  ranks.train(4, kSteps);
  EXPECT_THAT(ranks.bits(), Each(undisturbed()));
}

}  // namespace
}  // namespace oarlock
