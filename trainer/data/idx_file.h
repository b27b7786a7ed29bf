// The idx format of MNIST and its relatives: a big-endian header, then unsigned bytes. Plain or gzip, told by content.
//   0x00 0x00 0x08 <number of dimensions>, then each dimension as uint32, then the elements in row-major order
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"

namespace oarlock {

struct IdxFile {
  std::vector<int64_t> dims;   // outermost first; all > 0
  std::vector<uint8_t> bytes;  // product of dims
};

// Reads a file that must hold unsigned bytes in `dimensions` dimensions and nothing after them. kNoInput: not there.
// kDataErr: not such a file; the message says what was expected and what was found.
Result<IdxFile> read_idx_file(const std::filesystem::path& path, int dimensions);

}  // namespace oarlock
