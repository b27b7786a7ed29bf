#include "ddp/sync_batchnorm.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>
#include <string>
#include <vector>

#include "ddp/batch_norm.h"

namespace oarlock {
namespace {

class ProcessGroupCollectives final : public BatchNormCollectives {
 public:
  explicit ProcessGroupCollectives(const ProcessGroup& group) : group_(group) {}

  at::Tensor all_gather(const at::Tensor& own) const override {
    at::Tensor all = at::empty({group_.world_size(), own.numel()}, own.options());
    at::Tensor flat = all.view(-1);
    at::Tensor input = own.contiguous();
    group_.c10d()->_allgather_base(flat, input)->wait();
    return all;
  }

  void all_reduce(at::Tensor& values) const override { group_.all_reduce(values); }

 private:
  const ProcessGroup& group_;
};

bool is_libtorch_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1dImpl>() != nullptr || module.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
         module.as<torch::nn::BatchNorm3dImpl>() != nullptr;
}

}  // namespace

Result<void> convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group) {
  std::vector<std::string> unsupported;
  std::vector<BatchNorm*> convertible;
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    if (is_libtorch_batch_norm(*item.value())) unsupported.push_back("'" + item.key() + "'");
    if (auto* norm = dynamic_cast<BatchNorm*>(item.value().get())) convertible.push_back(norm);
  }
  if (!unsupported.empty()) {
    return fail(ExitCode::kConfig,
                fmt::format("the model's {} {} a torch::nn::BatchNorm, which cannot be "
                            "synchronized; build it from oarlock::BatchNorm1d, 2d, 3d (ddp/batch_norm.h), or set "
                            "sync_batch_norm to false",
                            fmt::join(unsupported, ", "), unsupported.size() == 1 ? "is" : "are"));
  }
  if (group.world_size() == 1) return {};
  const auto collectives = std::make_shared<ProcessGroupCollectives>(group);
  for (BatchNorm* norm : convertible) norm->synchronize(collectives);
  return {};
}

}  // namespace oarlock
