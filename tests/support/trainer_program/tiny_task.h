// A task that trains in milliseconds: random features with a rule to learn, an MLP with batch norm and dropout, so that
// buffers and random numbers matter; and faults on demand.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::test {

// data:  samples, eval_samples
// model: hidden, dropout, batch_norm, fault {kind: throw | nan | shape | prepare, rank, step}
std::unique_ptr<Task> make_tiny(Fields& root);

}  // namespace oarlock::test
