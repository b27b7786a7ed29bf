// The manifest of a checkpoint (manifest.json): the format version, and the files with their sizes and checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.h"
#include "ddp/digest_file.h"

namespace oarlock {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kStateFile[] = "state.json";

// The version that is written, and the oldest version that can be read. docs/checkpoint-format.md describes them.
inline constexpr uint64_t kFormatVersion = 2;
inline constexpr uint64_t kOldestFormatVersion = 1;

struct Manifest {
  uint64_t version = kFormatVersion;
  int64_t step = 0;
  std::map<std::string, FileDigest> files;
};

std::string to_text(const Manifest& manifest);

// Reads the manifest of a checkpoint directory. Unknown members and files are accepted, because a later release may add
// them without a new format version. The error code states the condition of the checkpoint:
//   kDataErr       The content is damaged or incomplete; the checkpoint can never be read.
//   kCheckpoint    It has another format, or an entry is not a regular file or is too large; it must not be modified.
//   kNoPermission  This process is not permitted to read it.
//   kTempFail      An I/O error occurred; reading may succeed later.
//   kNoInput       The directory does not exist.
Result<Manifest> read_manifest(const std::filesystem::path& directory);

// Convert between the stem and the name of a tensor file, for example "model" and "model.safetensors".
// tensor_file_stem() returns nothing if `file` is not the name of a tensor file.
std::string tensor_file_name(const std::string& stem);
std::optional<std::string> tensor_file_stem(std::string_view file);
bool is_tensor_file_stem(std::string_view name);

// Returns the kDataErr of read_manifest(): "path: what".
tl::unexpected<Error> damaged_checkpoint(const std::filesystem::path& path, const std::string& what);

// Returns the kCheckpoint of read_manifest() for a file that is longer than `limit` bytes. No present release writes
// such a file, but that does not prove that it is damaged.
tl::unexpected<Error> too_large_checkpoint(const std::filesystem::path& path, size_t limit);

// Returns the kCheckpoint of read_manifest() for content with the right checksum that this release does not support.
tl::unexpected<Error> unknown_checkpoint(const std::filesystem::path& path, const std::string& what);

// Maps the error of reading a file of a checkpoint to one of the codes of read_manifest().
Error as_checkpoint_error(Error error, const std::filesystem::path& path);

// Maps the error of writing to a checkpoint root to kCantCreate or kIoErr, and adds a remedy. kSoftware is not changed.
Error as_save_error(Error error);

// Returns whether `object` is an object with these members.
bool has_members(const nlohmann::json& object, std::initializer_list<const char*> keys);

}  // namespace oarlock
