#include "cli/convert/python_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace oarlock::convert {

const NameTable& optimizer_types() {
  static const NameTable kTypes = {{"AdamW", "adamw"}, {"Adam", "adam"}, {"SGD", "sgd"}};
  return kTypes;
}

const NameTable& optimizer_arguments() {
  static const NameTable kArguments = {{"lr", "lr"},
                                       {"weight_decay", "weight_decay"},
                                       {"momentum", "momentum"},
                                       {"dampening", "dampening"},
                                       {"nesterov", "nesterov"},
                                       {"betas", "betas"},
                                       {"eps", "eps"},
                                       {"amsgrad", "amsgrad"},
                                       {"maximize", "maximize"}};
  return kArguments;
}

const NameTable& schedule_types() {
  static const NameTable kTypes = {{"StepLR", "step"},
                                   {"MultiStepLR", "multistep"},
                                   {"ExponentialLR", "exponential"},
                                   {"CosineAnnealingLR", "cosine"}};
  return kTypes;
}

const NameTable& schedule_arguments() {
  static const NameTable kArguments = {
      {"step_size", "step_size"}, {"milestones", "milestones"}, {"gamma", "gamma"}, {"T_max", "length"}};
  return kArguments;
}

const NameTable& criterion_types() {
  static const NameTable kTypes = {{"CrossEntropyLoss", "cross_entropy"},
                                   {"cross_entropy", "cross_entropy"},
                                   {"MSELoss", "mse"},
                                   {"mse_loss", "mse"},
                                   {"L1Loss", "l1"},
                                   {"l1_loss", "l1"},
                                   {"SmoothL1Loss", "smooth_l1"},
                                   {"smooth_l1_loss", "smooth_l1"},
                                   {"BCEWithLogitsLoss", "bce_with_logits"},
                                   {"binary_cross_entropy_with_logits", "bce_with_logits"}};
  return kTypes;
}

std::string list_of(const NameTable& known) {
  std::vector<std::string> names;
  for (const auto& [name, ours] : known) names.push_back(name);
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} and {} are", fmt::join(names, ", "), last);
}

}  // namespace oarlock::convert
