#include "trainer/config/optimizer.h"

#include <fmt/format.h>

#include <regex>

namespace oarlock {
namespace {

void describe_group(ParameterGroupConfig& group, Fields& fields) {
  fields.field("match", group.match, "regular expression that is searched for in the names of parameters");
  fields.choice<GroupPreset>("preset", group.preset,
                             {{"none", GroupPreset::kNone}, {"no_decay", GroupPreset::kNoDecay}},
                             "instead of match: no_decay takes biases and the weights of normalisations (at most one "
                             "dimension), with a weight_decay of 0");
  fields.field("lr", group.lr, at_least(0), "learning rate, instead of optimizer.lr");
  fields.field("lr_scale", group.lr_scale, at_least(0), "times the learning rate");
  if (group.preset == GroupPreset::kNoDecay && !group.weight_decay) group.weight_decay = 0;
  fields.field("weight_decay", group.weight_decay, at_least(0), "instead of optimizer.weight_decay");
  const bool has_preset = group.preset != GroupPreset::kNone;
  if (group.match.empty() != has_preset) {
    fields.problem("match", "a group has either 'match' or 'preset: no_decay'");
  }
  try {
    const std::regex pattern(group.match);
  } catch (const std::regex_error& error) {
    fields.problem("match", fmt::format("'{}' is not a regular expression: {}", group.match, error.what()));
  }
}

}  // namespace

double default_weight_decay(OptimizerKind kind) { return kind == OptimizerKind::kAdamW ? 0.01 : 0; }

void describe(OptimizerConfig& config, Fields& fields) {
  fields.choice<OptimizerKind>(
      "name", config.kind,
      {{"adamw", OptimizerKind::kAdamW}, {"adam", OptimizerKind::kAdam}, {"sgd", OptimizerKind::kSgd}},
      "the optimizer");
  const bool sgd = config.kind == OptimizerKind::kSgd;
  fields.field("lr", config.lr, above(0), "learning rate at the top of the schedule, before scaling");
  if (!config.weight_decay) config.weight_decay = default_weight_decay(config.kind);
  fields.field("weight_decay", config.weight_decay, at_least(0),
               "decoupled for adamw, L2 for adam and sgd (whose default is 0)");
  fields.field("momentum", config.momentum, from_below(0, 1), "sgd");
  fields.field("dampening", config.dampening, from_below(0, 1), "sgd: of the momentum");
  fields.field("nesterov", config.nesterov, "sgd: Nesterov momentum");
  fields.field("betas", config.betas, from_below(0, 1), "adam, adamw: decay of the two moments");
  fields.field("eps", config.eps, above(0), "adam, adamw: added to the denominator");
  fields.field("amsgrad", config.amsgrad, "adam, adamw: divide by the largest second moment so far");
  fields.field("maximize", config.maximize, "go up the gradient");
  fields.list<ParameterGroupConfig>("groups", config.groups, describe_group,
                                    "parameters that are updated differently; the first group that fits counts");
  if (config.betas.size() != 2) fields.problem("betas", "expected two numbers in [0, 1)");
  for (const char* key : {"momentum", "dampening", "nesterov"}) {
    fields.only_where(key, sgd, "belongs to the optimizer sgd; this one is adam or adamw");
  }
  for (const char* key : {"betas", "eps", "amsgrad"}) {
    fields.only_where(key, !sgd, "belongs to the optimizers adam and adamw; this one is sgd");
  }
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0)) {
    fields.problem("nesterov", "needs a momentum above 0 and no dampening");
  }
}

}  // namespace oarlock
