#include "trainer/checkpoint/stateful.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace oarlock {

Result<void> copy_tensors(const TensorMap& from, const TensorMap& to, const std::string& what) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, target] : to) {
    const auto found = from.find(name);
    if (found == from.end()) {
      return fail(ExitCode::kDataErr,
                  fmt::format("the checkpoint's {} has no '{}': it was written for another model or optimizer; "
                              "correct the configuration or use another checkpoint.dir",
                              what, name));
    }
    if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type()) {
      return fail(
          ExitCode::kDataErr,
          fmt::format(
              "the checkpoint's {} '{}' is {} [{}], this model's is {} [{}]; correct the configuration or use another "
              "checkpoint.dir",
              what, name, c10::toString(found->second.scalar_type()), fmt::join(found->second.sizes(), ", "),
              c10::toString(target.scalar_type()), fmt::join(target.sizes(), ", ")));
    }
  }
  for (const auto& [name, source] : from) {
    if (!to.contains(name)) {
      return fail(ExitCode::kDataErr,
                  fmt::format("the checkpoint's {} has '{}', which this model does not have; correct the configuration "
                              "or use another checkpoint.dir",
                              what, name));
    }
  }
  for (const auto& [name, target] : to) at::Tensor(target).copy_(from.at(name));
  return {};
}

}  // namespace oarlock
