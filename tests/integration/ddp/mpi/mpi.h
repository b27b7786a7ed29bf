// A double of MPI, with what ddp/ddp_mpi.h and examples/ddp/mpi.cc use: the processes of one host, whose rank and
// number are in DOUBLE_RANK and DOUBLE_SIZE. Rank 0 broadcasts through FIFOs in DOUBLE_DIRECTORY, one of each other
// rank.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

// NOLINTBEGIN(readability-identifier-naming): the names of MPI
using MPI_Comm = void*;  // as in Open MPI; it is an int in MPICH
inline MPI_Comm MPI_COMM_WORLD = nullptr;
enum { MPI_SUCCESS = 0, MPI_ERR_OTHER = 15, MPI_CHAR = 1, MPI_COMM_TYPE_SHARED = 1, MPI_INFO_NULL = 0 };

inline int MPI_Init(int*, char***) { return MPI_SUCCESS; }
inline int MPI_Finalize() { return MPI_SUCCESS; }
inline int MPI_Comm_rank(MPI_Comm, int* rank) {
  *rank = std::atoi(std::getenv("DOUBLE_RANK"));
  return MPI_SUCCESS;
}
inline int MPI_Comm_size(MPI_Comm, int* size) {
  *size = std::atoi(std::getenv("DOUBLE_SIZE"));
  return MPI_SUCCESS;
}
inline int MPI_Comm_split_type(MPI_Comm from, int, int, int, MPI_Comm* to) {
  *to = from;
  return MPI_SUCCESS;
}
inline int MPI_Comm_free(MPI_Comm*) { return MPI_SUCCESS; }

// A FIFO is opened when both sides have arrived.
inline int MPI_Bcast(void* data, int count, int, int root, MPI_Comm communicator) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  for (int other = 0; other < size; ++other) {
    if (other == root || (rank != root && rank != other)) continue;
    const std::string path = std::string(std::getenv("DOUBLE_DIRECTORY")) + '/' + std::to_string(other);
    std::FILE* file = std::fopen(path.c_str(), rank == root ? "wb" : "rb");
    if (file == nullptr) return MPI_ERR_OTHER;
    const auto bytes = static_cast<size_t>(count);
    const size_t done = rank == root ? std::fwrite(data, 1, bytes, file) : std::fread(data, 1, bytes, file);
    if (std::fclose(file) != 0 || done != bytes) return MPI_ERR_OTHER;
  }
  return MPI_SUCCESS;
}
// NOLINTEND(readability-identifier-naming)
