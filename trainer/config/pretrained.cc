#include "trainer/config/pretrained.h"

namespace oarlock {

void describe(PretrainedConfig& config, Fields& fields) {
  fields.field("path", config.path,
               "safetensors file, of this program or of Python; empty: the model's own initial weights. A checkpoint "
               "of the run goes first");
  fields.field(
      "strict", config.strict,
      "names and shapes must be exactly the model's; else what fits is taken, and the rest is named in the log");
}

}  // namespace oarlock
