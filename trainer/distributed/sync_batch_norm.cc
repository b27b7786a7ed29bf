#include "trainer/distributed/sync_batch_norm.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/batchnorm.h>

#include "trainer/nn/batch_norm.h"

namespace oarlock {
namespace {

class GroupExchange final : public BatchExchange {
 public:
  explicit GroupExchange(const RankGroup& group) : group_(group) {}

  at::Tensor gather(const at::Tensor& own) const override {
    at::Tensor all = at::empty({group_.world_size(), own.numel()}, own.options());
    at::Tensor flat = all.view(-1);
    at::Tensor input = own.contiguous();
    group_.c10d()->_allgather_base(flat, input)->wait();
    return all;
  }

  void sum(at::Tensor& values) const override {
    std::vector<at::Tensor> tensors = {values};
    group_.c10d()->allreduce(tensors)->wait();
  }

 private:
  const RankGroup& group_;
};

bool is_libtorchs(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1dImpl>() != nullptr || module.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
         module.as<torch::nn::BatchNorm3dImpl>() != nullptr;
}

}  // namespace

Result<void> convert_sync_batch_norm(torch::nn::Module& module, const RankGroup& group) {
  std::vector<std::string> foreign;
  std::vector<BatchNorm*> own;
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    if (is_libtorchs(*item.value())) foreign.push_back("'" + item.key() + "'");
    if (auto* norm = dynamic_cast<BatchNorm*>(item.value().get())) own.push_back(norm);
  }
  if (!foreign.empty()) {
    return fail(ExitCode::kConfig,
                fmt::format("ddp.sync_batch_norm: the model's {} {} a torch::nn::BatchNorm, which cannot be "
                            "synchronised; build it of oarlock::BatchNorm1d, 2d, 3d (trainer/nn/batch_norm.h), or set "
                            "sync_batch_norm: false",
                            fmt::join(foreign, ", "), foreign.size() == 1 ? "is" : "are"));
  }
  if (group.world_size() == 1) return {};
  const auto exchange = std::make_shared<GroupExchange>(group);
  for (BatchNorm* norm : own) norm->synchronize(exchange);
  return {};
}

}  // namespace oarlock
