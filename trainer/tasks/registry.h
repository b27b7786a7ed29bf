// The tasks of oarlock-trainer. A new task is added here, or to the table of another program (docs/adding-a-task.md).
#pragma once

#include <memory>

#include "trainer/engine/task.h"

// The factory of each task, which task.cc of its folder defines.

// Graph networks on causal sets, as trained by QuantumGrav, from zarr stores and HDF5 files.
namespace oarlock::causal_set {
std::unique_ptr<Task> make_task(Fields& root);
}

// Properties of crystals by iComFormer or eComFormer.
namespace oarlock::comformer {
std::unique_ptr<Task> make_task(Fields& root);
}

// Expression of cells after perturbations of their genes (GEARS), from AnnData files.
namespace oarlock::gears {
std::unique_ptr<Task> make_task(Fields& root);
}

// Image classification on MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100: cross entropy, top-1 and top-5 accuracy.
namespace oarlock::image_classification {
std::unique_ptr<Task> make_task(Fields& root);
}

// Discrete diffusion of protein sequences by score entropy (SEDD), from FASTA files.
namespace oarlock::protein_diffusion {
std::unique_ptr<Task> make_task(Fields& root);
}

namespace oarlock {

// Returns the factories by the value of the key "task" that selects them.
inline TaskTable builtin_tasks() {
  return {
      {"causal_set", causal_set::make_task},
      {"comformer", comformer::make_task},
      {"gears", gears::make_task},
      {"image_classification", image_classification::make_task},
      {"protein_diffusion", protein_diffusion::make_task},
  };
}

}  // namespace oarlock
