#include "trainer/config/report.h"

namespace oarlock {

void describe(ReportConfig& config, Fields& fields) {
  fields.field("history", config.history,
               "JSON file of a list per column, which rank 0 replaces after every evaluation: epoch, step, train_loss "
               "(the mean since the evaluation before), learning_rate, seconds, and val_NAME for each metric; relative "
               "to checkpoint.dir, where there is one. It goes on over a resume. Empty: none");
  fields.field("curves", config.curves, "the same as a picture (SVG), the columns over the epochs. Empty: none");
}

}  // namespace oarlock
