#include "trainer/config/loader.h"

namespace oarlock {

void describe(LoaderConfig& config, Fields& fields) {
  fields.field("threads", config.threads, at_least(0), "threads that make batches; 0: the training thread does");
  fields.field("prefetch", config.prefetch, at_least(1), "batches per thread that may lie ready");
}

}  // namespace oarlock
