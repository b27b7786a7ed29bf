#include "trainer/config/eval.h"

namespace oarlock {

void describe(EvalConfig& config, Fields& fields) {
  fields.field("every_epochs", config.every_epochs, at_least(0), "evaluate after so many epochs; 0: at the end only");
  fields.field("batch_size", config.batch_size, at_least(0), "samples per step on one rank; 0: batch.size");
}

}  // namespace oarlock
