#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/work_progress.h"
#include "ddp/digest_file.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 100;  // of state.json
constexpr size_t kMaxStateBytes = size_t{256} << 20;

json to_json(const CheckpointState& state) {
  return {{"step", state.step},
          {"high_water_step", state.high_water_step},
          {"epoch", state.epoch},
          {"epoch_samples", state.epoch_samples},
          {"world_size", state.world_size},
          {"uid", state.owner.uid},
          {"attempt", state.owner.attempt},
          {"sections", state.sections},
          {"extra", state.extra}};
}

// Adds the high-water mark and the values of sections, which version 1 does not have.
void upgrade_from_version_1(json& value, const Manifest& manifest) {
  if (value.contains("step")) value["high_water_step"] = value["step"];
  value["sections"] = json::object();
  for (const auto& [name, digest] : manifest.files) {
    const auto stem = tensor_file_stem(name);
    if (stem && *stem != kModelTensors) value["sections"][*stem] = json::object();
  }
}

// Parses state.json. Its checksum is correct, so an invalid content is an unknown format, not damage.
Result<CheckpointState> state_from(const std::string& text, const Manifest& manifest,
                                   const std::filesystem::path& path) {
  const auto unknown_format = [&](const std::string& what) { return unknown_checkpoint(path, what); };
  if (json_depth(text) > kMaxDepth) return unknown_format(fmt::format("it is nested deeper than {} levels", kMaxDepth));
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return unknown_format("it is not JSON");
  if (manifest.version == 1 && value.is_object()) upgrade_from_version_1(value, manifest);
  if (!has_members(value, {"step", "high_water_step", "epoch", "epoch_samples", "world_size", "uid", "attempt",
                           "sections", "extra"})) {
    return unknown_format(
        "step, high_water_step, epoch, epoch_samples, world_size, uid, attempt, sections or extra is missing");
  }
  for (const char* key : {"step", "high_water_step", "epoch", "epoch_samples", "world_size", "attempt"}) {
    if (!value[key].is_number_unsigned() || value[key].get<uint64_t>() > INT64_MAX)
      return unknown_format(fmt::format("{} is not a count", key));
  }
  for (const char* key : {"world_size", "attempt"}) {
    if (!std::in_range<int>(value[key].get<uint64_t>())) return unknown_format(fmt::format("{} is too large", key));
  }
  if (!value["uid"].is_string() || !value["sections"].is_object() || !value["extra"].is_object())
    return unknown_format("uid, sections or extra has the wrong type");
  CheckpointState state;
  state.step = value["step"];
  state.high_water_step = value["high_water_step"];
  state.epoch = value["epoch"];
  state.epoch_samples = value["epoch_samples"];
  state.world_size = value["world_size"];
  state.owner = {.uid = value["uid"], .attempt = value["attempt"]};
  state.sections = value["sections"];
  state.extra = value["extra"];
  if (state.step != manifest.step) {
    return damaged_checkpoint(
        path.parent_path() / kManifestFile,
        fmt::format("its step is {}, but the step in {} is {}", manifest.step, kStateFile, state.step));
  }
  return state;
}

Result<FileDigest> write_text(const std::filesystem::path& path, const std::string& text) {
  ASSIGN_OR_RETURN(DigestWriter file, DigestWriter::create(path));
  RETURN_IF_ERROR(file.write(text));
  return file.finish();
}

Result<void> check_size(const std::filesystem::path& path, const FileDigest& expected) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // Reading reports an entry that is not a regular file.
  if (status.type() != std::filesystem::file_type::regular) return {};
  const auto size = std::filesystem::file_size(path, error);
  if (!error && static_cast<int64_t>(size) != expected.bytes)
    return damaged_checkpoint(path, fmt::format("expected {} bytes, found {}", expected.bytes, size));
  return {};
}

Result<void> check_digest(const std::filesystem::path& path, const FileDigest& expected, const FileDigest& found) {
  if (found == expected) return {};
  return damaged_checkpoint(
      path, fmt::format("expected checksum {}, found {}: the file is damaged", expected.xxh3_128, found.xxh3_128));
}

Result<CheckpointState> read_state(const std::filesystem::path& directory, const Manifest& manifest) {
  const std::filesystem::path path = directory / kStateFile;
  const FileDigest& expected = manifest.files.at(kStateFile);
  RETURN_IF_ERROR(check_size(path, expected));
  if (std::cmp_greater(expected.bytes, kMaxStateBytes)) return too_large_checkpoint(path, kMaxStateBytes);
  const auto text = read_regular_file(path, kMaxStateBytes);
  if (!text) return tl::make_unexpected(as_checkpoint_error(text.error(), path));
  RETURN_IF_ERROR(check_digest(path, expected, digest_of_text(*text)));
  return state_from(*text, manifest, path);
}

Result<void> verify_file(const std::filesystem::path& path, const FileDigest& expected) {
  RETURN_IF_ERROR(check_size(path, expected));
  const auto found = digest_of(path);
  if (!found) return tl::make_unexpected(as_checkpoint_error(found.error(), path));
  return check_digest(path, expected, *found);
}

// Reads each byte once; the checksum is computed over the bytes that were copied into the tensors.
Result<TensorMap> read_tensors(const std::filesystem::path& path, const FileDigest& expected) {
  RETURN_IF_ERROR(check_size(path, expected));
  auto file = read_safetensors(path);
  if (!file && file.error().code == ExitCode::kDataErr) {
    // The checksum distinguishes damage from a layout that this release does not support.
    RETURN_IF_ERROR(verify_file(path, expected));
    return fail(ExitCode::kCheckpoint,
                fmt::format("{}; its checksum is right: use the release that wrote it, or another checkpoint.dir",
                            file.error().message));
  }
  if (!file) return tl::make_unexpected(as_checkpoint_error(file.error(), path));
  RETURN_IF_ERROR(check_digest(path, expected, file->digest));
  return std::move(file->tensors);
}

}  // namespace

Result<int64_t> write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& directory) {
  if (!checkpoint.tensors.contains(kModelTensors)) {
    return fail(ExitCode::kSoftware,
                fmt::format("{}: a checkpoint needs \"{}\" tensors", directory.string(), kModelTensors));
  }
  int64_t total = 0;
  for (const auto& [stem, tensors] : checkpoint.tensors) {
    for (const auto& [name, tensor] : tensors) total += static_cast<int64_t>(tensor.nbytes());
  }
  report_work(LongWork::kSave, 0, total);
  Manifest manifest;
  manifest.step = checkpoint.state.step;
  for (const auto& [stem, tensors] : checkpoint.tensors) {
    if (!is_tensor_file_stem(stem)) {
      return fail(ExitCode::kSoftware,
                  fmt::format("{}: \"{}\" is not a valid name of a tensor file", directory.string(), stem));
    }
    const std::string name = tensor_file_name(stem);
    SafetensorsMetadata metadata{{"format", "pt"}};  // which Python readers expect for tensors of PyTorch
    if (stem == kModelTensors || stem == kAverageTensors)
      metadata.insert(checkpoint.model_metadata.begin(), checkpoint.model_metadata.end());
    auto digest = write_safetensors(directory / name, tensors, metadata);
    ASSIGN_OR_RETURN(manifest.files[name], std::move(digest));
  }
  ASSIGN_OR_RETURN(manifest.files[kStateFile],
                   write_text(directory / kStateFile, to_json(checkpoint.state).dump(2) + "\n"));
  if (std::cmp_greater(manifest.files[kStateFile].bytes, kMaxStateBytes)) {
    return fail(ExitCode::kSoftware, fmt::format("{}: {} has more than the {} bytes that can be read again",
                                                 directory.string(), kStateFile, kMaxStateBytes));
  }

  int64_t bytes = 0;
  for (const auto& [name, digest] : manifest.files) bytes += digest.bytes;
  ASSIGN_OR_RETURN(const FileDigest written, write_text(directory / kManifestFile, to_text(manifest)));
  RETURN_IF_ERROR(sync_directory(directory));
  return bytes + written.bytes;
}

Result<int64_t> verify_checkpoint(const std::filesystem::path& directory) {
  ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(directory));
  RETURN_IF_ERROR(read_state(directory, manifest));
  for (const auto& [name, expected] : manifest.files) {
    if (name == kStateFile) continue;
    RETURN_IF_ERROR(verify_file(directory / name, expected));
  }
  return manifest.step;
}

Result<Checkpoint> read_checkpoint(const std::filesystem::path& directory) {
  ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(directory));
  Checkpoint checkpoint;
  ASSIGN_OR_RETURN(checkpoint.state, read_state(directory, manifest));
  for (const auto& [name, expected] : manifest.files) {
    if (name == kStateFile) continue;
    const std::optional<std::string> stem = tensor_file_stem(name);
    if (!stem) {  // a file of a later release
      RETURN_IF_ERROR(verify_file(directory / name, expected));
      continue;
    }
    ASSIGN_OR_RETURN(TensorMap tensors, read_tensors(directory / name, expected));
    checkpoint.tensors.emplace(*stem, std::move(tensors));
  }
  return checkpoint;
}

Result<CheckpointState> read_checkpoint_state(const std::filesystem::path& directory) {
  ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(directory));
  return read_state(directory, manifest);
}

}  // namespace oarlock
