#include "trainer/config/eval.h"

namespace oarlock {

void describe(EvalConfig& config, Fields& fields) {
  fields.field("every_epochs", config.every_epochs, at_least(0),
               "evaluate after so many epochs; 0: not by epochs; the end of the run is always evaluated");
  fields.field("every_steps", config.every_steps, at_least(0),
               "evaluate after so many optimizer steps; 0: not by steps");
  fields.field("batch_size", config.batch_size, at_least(0), "samples per step on one rank; 0: batch.size");
  fields.field("rows_file", config.rows_file,
               "where rank 0 writes what the task's evaluation gives for each sample, as CSV with the columns id and "
               "the task's; the last evaluation stays. Empty: nowhere");
}

}  // namespace oarlock
