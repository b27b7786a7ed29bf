#include "trainer/engine/pretrained.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

constexpr std::array<std::string_view, 2> kWrappers = {"module.", "_orig_mod."};
constexpr size_t kNamesShown = 3;

TensorMap tensors_of(const torch::nn::Module& module) {
  TensorMap out;
  for (const NamedTensor& item : unique_parameters(module)) out[item.name] = item.tensor;
  for (const NamedTensor& item : unique_buffers(module)) out[item.name] = item.tensor;
  return out;
}

PretrainedReport compare(const TensorMap& file, const TensorMap& model) {
  PretrainedReport out;
  for (const auto& [name, tensor] : model) {
    const auto found = file.find(name);
    if (found == file.end()) {
      out.missing.push_back(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      out.misshapen.push_back(fmt::format("{} [{}] for [{}]", name, fmt::join(found->second.sizes(), ", "),
                                          fmt::join(tensor.sizes(), ", ")));
    } else {
      ++out.loaded;
    }
  }
  for (const auto& [name, tensor] : file) {
    if (!model.contains(name)) out.unexpected.push_back(name);
  }
  return out;
}

std::string first_names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string out =
      fmt::format("'{}'", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"));
  if (names.size() > shown) out += fmt::format(" and {} more", names.size() - shown);
  return out;
}

}  // namespace

std::string PretrainedReport::misfit() const {
  std::vector<std::string> parts;
  if (!missing.empty()) parts.push_back("it has no " + first_names(missing));
  if (!unexpected.empty()) parts.push_back("the model has no " + first_names(unexpected));
  if (!misshapen.empty()) parts.push_back("shapes differ: " + first_names(misshapen));
  return fmt::format("{}", fmt::join(parts, "; "));
}

TensorMap without_wrappers(TensorMap tensors) {
  const auto shared = [&](std::string_view prefix) {
    return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(),
                                           [&](const auto& item) { return item.first.starts_with(prefix); });
  };
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : kWrappers) {
      if (!shared(prefix)) continue;
      TensorMap shorter;
      for (auto& [name, tensor] : tensors) shorter.emplace(name.substr(prefix.size()), std::move(tensor));
      tensors = std::move(shorter);
      again = true;
    }
  }
  return tensors;
}

Result<PretrainedReport> load_pretrained(const PretrainedConfig& config, TensorMap tensors,
                                         const torch::nn::Module& module) {
  const TensorMap from = without_wrappers(std::move(tensors));
  const TensorMap to = tensors_of(module);
  PretrainedReport report = compare(from, to);
  if (config.strict ? !report.fits() : report.loaded == 0) {
    return fail(
        ExitCode::kDataErr,
        fmt::format("pretrained.path: {} does not fit the model: {}; {}", config.path, report.misfit(),
                    config.strict ? "correct the model, or load only the matching tensors with pretrained.strict: false"
                                  : "nothing fits"));
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, target] : to) {
    const auto found = from.find(name);
    if (found != from.end() && found->second.sizes() == target.sizes()) at::Tensor(target).copy_(found->second);
  }
  return report;
}

}  // namespace oarlock
