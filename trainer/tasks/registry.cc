#include "trainer/tasks/registry.h"

#include "trainer/tasks/image_classification/task.h"

namespace oarlock {

TaskTable builtin_tasks() {
  return {
      {"image_classification", make_image_classification},
  };
}

}  // namespace oarlock
