#include "trainer/tasks/registry.h"

#include "trainer/tasks/causal_set/task.h"
#include "trainer/tasks/comformer/task.h"
#include "trainer/tasks/gears/task.h"
#include "trainer/tasks/image_classification/task.h"
#include "trainer/tasks/protein_diffusion/task.h"

namespace oarlock {

TaskTable builtin_tasks() {
  return {
      {"causal_set", make_causal_set},
      {"comformer", make_comformer_task},
      {"gears", make_gears},
      {"image_classification", make_image_classification},
      {"protein_diffusion", make_protein_diffusion},
  };
}

}  // namespace oarlock
