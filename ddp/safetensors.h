// The safetensors format, compatible with the Python package of this name. A file consists of:
//   8 bytes   the length n of the header, little-endian
//   n bytes   JSON {"name": {"dtype", "shape", "data_offsets"}, ..., "__metadata__": {string: string}}
//   the rest  the elements of the tensors, row-major, little-endian, without gaps
// https://github.com/huggingface/safetensors#format
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/error.h"
#include "ddp/digest_file.h"
#include "ddp/tensor_map.h"

namespace oarlock {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  TensorMap tensors;  // on the CPU, contiguous; they own their memory
  SafetensorsMetadata metadata;
  FileDigest digest;  // of the whole file, computed while reading
};

// Reads a file and validates it: the length of the header, JSON without duplicate keys, dtypes, shapes, and offsets
// that are inside the file, match dtype and shape, do not overlap and leave no gap. Allocates no more memory than the
// size of the file requires. Each byte is read once. Returns kDataErr, naming the file and the tensor, if the file is
// invalid, kOsErr if memory is insufficient, or the codes of fail_errno().
Result<SafetensorsFile> read_safetensors(const std::filesystem::path& path);

// Writes a new file and syncs it to disk. The bytes are identical to those of the Python package: widest dtype first,
// then by name, so that every tensor is aligned. Tensors may be on any device and need not be contiguous. Returns
// kUsage if the format does not support a tensor, kCantCreate, or kIoErr.
Result<FileDigest> write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                                     const SafetensorsMetadata& metadata = {});

}  // namespace oarlock
