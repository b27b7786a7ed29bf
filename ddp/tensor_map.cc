#include "ddp/tensor_map.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/status_macros.h"

namespace oarlock {

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

Result<void> check_tensors(const TensorMap& from, const TensorMap& to, const std::string& source) {
  for (const auto& [name, target] : to) {
    const auto found = from.find(name);
    if (found == from.end()) {
      return fail(ExitCode::kDataErr, fmt::format("{} has no '{}', which this program has as {}: it was written for "
                                                  "another model or optimizer",
                                                  source, name, shape_text(target)));
    }
    if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type()) {
      return fail(ExitCode::kDataErr, fmt::format("{}: '{}' is {}, this program's is {}", source, name,
                                                  shape_text(found->second), shape_text(target)));
    }
  }
  for (const auto& [name, tensor] : from) {
    if (!to.contains(name)) {
      return fail(ExitCode::kDataErr,
                  fmt::format("{} has '{}' of {}, which this program does not have", source, name, shape_text(tensor)));
    }
  }
  return {};
}

Result<void> copy_tensors(const TensorMap& from, const TensorMap& to, const std::string& source) {
  RETURN_IF_ERROR(check_tensors(from, to, source));
  const at::NoGradGuard no_grad;
  for (const auto& [name, target] : to) at::Tensor(target).copy_(from.at(name));
  return {};
}

}  // namespace oarlock
