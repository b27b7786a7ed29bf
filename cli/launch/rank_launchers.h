// Commands that start the ranks of a node themselves.
#pragma once

#include <string>
#include <vector>

namespace oarlock::launch {

// Returns whether a command is torchrun, python -m torch.distributed.run, accelerate launch, deepspeed, mpirun,
// horovodrun, srun, oarlock launch or another program that starts several ranks: directly, after a program such as env
// or nice, or in the script of a shell with -c. Pure.
bool starts_ranks(const std::vector<std::string>& words);

}  // namespace oarlock::launch
