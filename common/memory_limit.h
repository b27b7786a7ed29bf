// The memory that this process may use, and a check before allocations whose size a file determines. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/error.h"

namespace oarlock {

// Returns the smallest memory limit, in bytes, of the cgroup of this process and of its parents; nothing if there is no
// limit.
std::optional<uint64_t> cgroup_memory_limit();

// Returns the bytes that this process can probably still allocate: the memory that the machine has available, or the
// part of cgroup_memory_limit() that this process does not use yet, whichever is less. UINT64_MAX if it is unknown.
uint64_t available_memory();

// Fails with kOsErr if an allocation of `count` times `size` bytes overflows or exceeds available_memory(). Without
// this check, a size field with a wrong value ends the process with SIGKILL, without a message. `what` names the file
// and the part of it that is read.
Result<void> expect_memory(uint64_t count, uint64_t size, const std::string& what);

}  // namespace oarlock
