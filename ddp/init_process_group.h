// Connects the ranks of a program, as torch.distributed.init_process_group (torch/distributed/distributed_c10d.py)
// does.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "ddp/group_membership.h"
#include "ddp/init_distributed.h"
#include "ddp/rank_environment.h"

namespace oarlock {

enum class Backend {
  kAuto,  // NCCL for a CUDA device if the library was built with it, otherwise Gloo
  kGloo,  // tensors on the CPU
  kNccl   // tensors on a CUDA device
};

struct InitProcessGroupOptions {
  Backend backend = Backend::kAuto;
  at::Device device = at::kCPU;                        // of the tensors of the collectives
  std::chrono::milliseconds timeout{600'000};          // of one collective
  std::chrono::milliseconds connect_timeout{300'000};  // until all ranks are connected
};

// Connects the ranks that the environment describes (read_rank_environment()): RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT, or the variables of an MPI launcher or of Slurm. Without any of them, the process is a group of one
// rank. Blocks until all ranks have called it. The context must exist as long as its group is used; it is to be
// destroyed on all ranks together.
//
// Throws an ErrorException (common/error.h), whose message is one line with the remedy: kConfig if the environment is
// invalid, or if the ranks disagree about the number of ranks or the device; kTempFail if not all ranks arrive in time,
// with the ranks that are missing; kUnavailable if the port or the backend is not available; kPeerLost if a rank exits
// meanwhile. Reports to standard error every five seconds which ranks are missing.
//
// Ignores SIGPIPE unless the program has a handler for it, as Python does: the loss of a rank is an error of the next
// collective, and not a signal.
//
// A collective that fails because another rank was lost throws an exception of LibTorch; to_error() (library_errors.h)
// turns it into a message of one line. With NCCL, a watchdog ends the process instead, through std::terminate(), also
// while the ranks connect.
DistributedContext init_process_group(const InitProcessGroupOptions& options = {});

// As above, for ranks that the caller describes: rank and world_size, and master_addr and master_port of a free TCP
// port of rank 0's host. The other members may be left as they are.
DistributedContext init_process_group(const RankEnvironment& ranks, const InitProcessGroupOptions& options = {});

// As init_process_group() with the environment, for a program whose ranks are replaced when they are lost
// (ddp/recoverable_loop.h). Its group() is the group. If this process replaces a lost one, the group is connected by
// the RecoverableLoop only, and each collective is the identity before. Only `oarlock launch --restart-policy rank`
// replaces ranks; with another launcher, the loss of a rank is the failure of a collective.
std::unique_ptr<GroupMembership> init_recoverable_process_group(const InitProcessGroupOptions& options = {});

}  // namespace oarlock
