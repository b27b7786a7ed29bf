// The safetensors format, both ways with Python's safetensors package.
//   8 bytes: length n of the header, little-endian; n bytes: JSON {"name": {"dtype", "shape", "data_offsets"}, ...,
//   "__metadata__": {string: string}}; then the tensors' elements, row-major, little-endian, without gaps
// https://github.com/huggingface/safetensors#format
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "common/error.h"
#include "trainer/checkpoint/digest_file.h"

namespace oarlock {

using TensorMap = std::map<std::string, at::Tensor>;
using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  TensorMap tensors;  // on the CPU, contiguous, owning their memory
  SafetensorsMetadata metadata;
  FileDigest digest;  // of the whole file, computed while it was read
};

// Checks everything before it trusts it: header length, JSON without duplicate keys, known dtypes, shapes, and offsets
// that lie inside the file, fit dtype and shape, do not overlap and leave no gap. Nothing is allocated for a size that
// the file does not have. Each byte is read once. kDataErr names file and tensor; kOsErr: not enough memory; the codes
// of fail_errno().
Result<SafetensorsFile> read_safetensors(const std::filesystem::path& path);

// Writes a new file, byte for byte as Python's package would (widest dtype first, then by name, so that every tensor is
// aligned), and fsyncs it. Tensors may lie on any device and need not be contiguous. kUsage: a dtype that the format
// does not have; kCantCreate, kIoErr.
Result<FileDigest> write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                                     const SafetensorsMetadata& metadata = {});

}  // namespace oarlock
