// manifest.json of a checkpoint: its format version and its files with their sizes and checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.h"
#include "trainer/checkpoint/digest_file.h"

namespace oarlock {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kStateFile[] = "state.json";

// The version that is written, and the oldest one that is read. docs/checkpoint-format.md describes them.
inline constexpr uint64_t kFormatVersion = 2;
inline constexpr uint64_t kOldestFormatVersion = 1;

struct Manifest {
  uint64_t version = kFormatVersion;
  int64_t step = 0;
  std::map<std::string, FileDigest> files;
};

std::string to_text(const Manifest& manifest);

// Reads root/step-.../manifest.json. Unknown members and files are accepted: a later release may add them without a new
// format version. The error's code states what is known about the checkpoint:
//   kDataErr       its content is damaged or incomplete: it can never be read
//   kCheckpoint    it has another format, or something else is in the place of a file: it must not be touched
//   kNoPermission  this process may not read it
//   kTempFail      reading failed, and may work again: I/O errors
//   kNoInput       the folder does not exist
Result<Manifest> read_manifest(const std::filesystem::path& folder);

// "model.safetensors" from "model", and back; nothing for another name.
std::string tensor_file_name(const std::string& stem);
std::optional<std::string> tensor_file_stem(std::string_view file);
bool is_tensor_file_stem(std::string_view name);

// Gives the error of reading `path`, a file of a checkpoint, one of the codes of read_manifest().
Error as_checkpoint_error(Error error, const std::filesystem::path& path);

// The object has these members, and perhaps others.
bool has_members(const nlohmann::json& object, std::initializer_list<const char*> keys);

}  // namespace oarlock
