// Image classification on MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100: cross entropy, top-1 and top-5 accuracy.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::image_classification {

// Creates the task and reads its sections of the configuration. An invalid value is a problem of `root`.
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::image_classification
