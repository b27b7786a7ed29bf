// A straight line through the logarithms of the columns of a CSV file.
#pragma once

#include <memory>

#include <oarlock/trainer/engine/task.h>

namespace kepler {

std::unique_ptr<oarlock::Task> make_task(oarlock::Fields& root);

}  // namespace kepler
