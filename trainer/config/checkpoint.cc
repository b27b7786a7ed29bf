#include "trainer/config/checkpoint.h"

namespace oarlock {

void describe(CheckpointConfig& config, Fields& fields) {
  fields.field("dir", config.dir, "folder of the checkpoints; empty: $OARLOCK_CHECKPOINT_DIR, else none are written");
  fields.field("every_steps", config.every_steps, at_least(0), "save after so many steps; 0: not by steps");
  fields.field("every_epochs", config.every_epochs, at_least(0),
               "save after so many epochs; 0: not by epochs. The end of the run is always saved");
  fields.field("keep", config.keep, at_least(0), "newest checkpoints that stay; 0: all");
}

}  // namespace oarlock
