// Connects the ranks of an MPI communicator, for programs that use MPI already. MPI is the program's own: this header
// is the only file of Oarlock that includes <mpi.h>, and is not part of <oarlock/ddp.h>. MPI only distributes the
// address of rank 0; all collectives are those of the process group. Works with any MPI 3.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/error.h"
#include "common/port_socket.h"
#include "ddp/init_process_group.h"
#include "ddp/rank_environment.h"

namespace oarlock {

// Throws an ErrorException with kUnavailable if an MPI call failed. By default, MPI ends the program instead.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  throw ErrorException({ExitCode::kUnavailable, std::string(call) + ": MPI error " + std::to_string(code)});
}

// Returns the rank of this process among those of the communicator on its host, which selects the CUDA device. Called
// by all ranks of the communicator, with MPI_Init() done.
inline int mpi_local_rank(MPI_Comm communicator) {
  MPI_Comm host{};
  check_mpi(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int rank = 0;
  check_mpi(MPI_Comm_rank(host, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  return rank;
}

// Connects the ranks of the communicator as a group with the same ranks. Called by all of them, after MPI_Init() and on
// the thread that may call MPI. Rank 0 selects a free port, and broadcasts it with its host name, which the other hosts
// must be able to resolve, or with the variable MASTER_ADDR of its environment. Otherwise as init_process_group(), with
// the same errors. The group does not use the communicator afterwards, and may outlive MPI_Finalize().
inline DistributedContext init_process_group_from_mpi(MPI_Comm communicator,
                                                      const InitProcessGroupOptions& options = {}) {
  RankEnvironment ranks;
  check_mpi(MPI_Comm_rank(communicator, &ranks.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator, &ranks.world_size), "MPI_Comm_size");
  PortSocket reservation;           // until rank 0 listens on the port, no other program can be given it
  std::array<char, 264> address{};  // "port host"; empty if rank 0 has failed, so that the others do not wait for it
  if (ranks.rank == 0 && reserve_port(0, reservation) == 0) {
    std::array<char, 256> name{};
    const auto given = process_environment()("MASTER_ADDR");
    if (given || ::gethostname(name.data(), name.size() - 1) == 0) {
      const std::string text = std::to_string(reservation.port) + ' ' + given.value_or(name.data());
      if (text.size() < address.size()) std::memcpy(address.data(), text.data(), text.size());
    }
  }
  check_mpi(MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_CHAR, 0, communicator), "MPI_Bcast");
  const std::string text(address.data());
  const size_t space = text.find(' ');
  if (space == std::string::npos)
    throw ErrorException({ExitCode::kUnavailable, "init_process_group_from_mpi: rank 0 has no host name or free port"});
  ranks.master_port = std::stoi(text.substr(0, space));
  ranks.master_addr = text.substr(space + 1);
  return init_process_group(ranks, options);
}

}  // namespace oarlock
