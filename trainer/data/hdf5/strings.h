// Strings of a dataset, an attribute or a member of a compound type: of a fixed or of a variable length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data/hdf5/library.h"

namespace oarlock {

// Reads elements, as this type of the memory, into the buffer; whether it succeeded.
using Hdf5Read = std::function<bool(int64_t memory_type, void* buffer)>;

// `count` strings of the type `file_type`. Trailing zeros, and trailing blanks where the type pads with them, are not
// part of a string of a fixed length. `member`: the name of a member of a compound type whose type `file_type` is;
// empty where the elements are strings themselves.
Result<std::vector<std::string>> read_hdf5_strings(const Hdf5Place& place, int64_t file_type, int64_t count,
                                                   const std::string& member, const Hdf5Read& read);

}  // namespace oarlock
