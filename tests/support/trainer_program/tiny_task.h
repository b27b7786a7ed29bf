// A task that trains in milliseconds: random features with a rule to learn, an MLP with batch norm and dropout, so that
// buffers and random numbers matter; and faults on demand.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::test {

// data:  samples, eval_samples, rows, prepared_file, prepare_on
// model: hidden, dropout, batch_norm, fault {kind: throw | device | nan | nan_from | nan_gradient | inf | shape |
// prepare | prepare_data, rank, step}
std::unique_ptr<Task> make_tiny(Fields& root);

}  // namespace oarlock::test
