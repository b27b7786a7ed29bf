#include "trainer/tasks/registry.h"

#include "trainer/tasks/causal_set/task.h"
#include "trainer/tasks/comformer/task.h"
#include "trainer/tasks/gears/task.h"
#include "trainer/tasks/image_classification/task.h"
#include "trainer/tasks/protein_diffusion/task.h"

namespace oarlock {

TaskTable builtin_tasks() {
  return {
      {"causal_set", causal_set::make_task},
      {"comformer", comformer::make_task},
      {"gears", gears::make_task},
      {"image_classification", image_classification::make_task},
      {"protein_diffusion", protein_diffusion::make_task},
  };
}

}  // namespace oarlock
