#include "trainer/config/optimizer.h"

namespace oarlock {

void describe(OptimizerConfig& config, Fields& fields) {
  fields.choice<OptimizerKind>("name", config.kind, {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}},
                               "the optimizer");
  const bool sgd = config.kind == OptimizerKind::kSgd;
  if (sgd && !fields.given("weight_decay")) config.weight_decay = 0;
  fields.field("lr", config.lr, above(0), "learning rate at the top of the schedule");
  fields.field("weight_decay", config.weight_decay, at_least(0),
               "decoupled for adamw, L2 for sgd (whose default is 0)");
  fields.field("momentum", config.momentum, from_below(0, 1), "sgd");
  fields.field("nesterov", config.nesterov, "sgd: Nesterov momentum");
  fields.field("betas", config.betas, from_below(0, 1), "adamw: decay of the two moments");
  fields.field("eps", config.eps, above(0), "adamw: added to the denominator");
  if (config.betas.size() != 2) fields.problem("betas", "expected two numbers in [0, 1)");
  for (const char* key : {"momentum", "nesterov"}) {
    fields.only_where(key, sgd, "belongs to the optimizer sgd; this one is adamw");
  }
  for (const char* key : {"betas", "eps"}) {
    fields.only_where(key, !sgd, "belongs to the optimizer adamw; this one is sgd");
  }
  if (config.nesterov && config.momentum == 0) fields.problem("nesterov", "needs a momentum above 0");
}

}  // namespace oarlock
