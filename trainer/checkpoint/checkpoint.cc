#include "trainer/checkpoint/checkpoint.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "common/files.h"
#include "common/json_depth.h"
#include "trainer/checkpoint/digest_file.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 100;  // of state.json

tl::unexpected<Error> damaged(const std::filesystem::path& path, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {}", path.string(), what));
}

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

// Version 1 had no high-water mark, and no values of sections.
void add_what_version_1_lacks(json& value, const Manifest& manifest) {
  if (value.contains("step")) value["high_water_step"] = value["step"];
  value["sections"] = json::object();
  for (const auto& [name, digest] : manifest.files) {
    const auto stem = tensor_file_stem(name);
    if (stem && *stem != kModelTensors) value["sections"][*stem] = json::object();
  }
}

// The text's bytes are known to be those that were written: what is wrong with them is not damage.
Result<CheckpointState> state_from(const std::string& text, const Manifest& manifest,
                                   const std::filesystem::path& path) {
  const auto foreign = [&](const std::string& what) {
    return fail(
        ExitCode::kCheckpoint,
        fmt::format("{}: the checksum is right, but {}; use the release that wrote it, or another checkpoint.dir",
                    path.string(), what));
  };
  if (json_depth(text) > kMaxDepth) return foreign(fmt::format("it is nested deeper than {} levels", kMaxDepth));
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return foreign("it is not JSON");
  if (manifest.version == 1 && value.is_object()) add_what_version_1_lacks(value, manifest);
  if (!has_members(value, {"step", "high_water_step", "epoch", "epoch_samples", "world_size", "uid", "attempt",
                           "sections", "extra"})) {
    return foreign(
        "step, high_water_step, epoch, epoch_samples, world_size, uid, attempt, sections or extra is missing");
  }
  for (const char* key : {"step", "high_water_step", "epoch", "epoch_samples", "world_size", "attempt"}) {
    if (!value[key].is_number_unsigned() || value[key].get<uint64_t>() > INT64_MAX)
      return foreign(fmt::format("{} is not a count", key));
  }
  for (const char* key : {"world_size", "attempt"}) {
    if (!std::in_range<int>(value[key].get<uint64_t>())) return foreign(fmt::format("{} is too large", key));
  }
  if (!value["uid"].is_string() || !value["sections"].is_object() || !value["extra"].is_object())
    return foreign("uid, sections or extra has the wrong type");
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
    return damaged(path.parent_path() / kManifestFile,
                   fmt::format("it says step {}, {} says {}", manifest.step, kStateFile, state.step));
  }
  return state;
}

Result<FileDigest> write_text(const std::filesystem::path& path, const std::string& text) {
  auto file = DigestWriter::create(path);
  if (!file) return tl::make_unexpected(file.error());
  if (auto written = file->write(text); !written) return tl::make_unexpected(written.error());
  return file->finish();
}

Result<void> check_size(const std::filesystem::path& path, const FileDigest& expected) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // Something that is not a file is reported by reading it.
  if (status.type() != std::filesystem::file_type::regular) return {};
  const auto size = std::filesystem::file_size(path, error);
  if (!error && static_cast<int64_t>(size) != expected.bytes)
    return damaged(path, fmt::format("expected {} bytes, found {}", expected.bytes, size));
  return {};
}

Result<void> check_digest(const std::filesystem::path& path, const FileDigest& expected, const FileDigest& found) {
  if (found == expected) return {};
  return damaged(path,
                 fmt::format("expected checksum {}, found {}: the file is damaged", expected.xxh3_128, found.xxh3_128));
}

Result<CheckpointState> read_state(const std::filesystem::path& folder, const Manifest& manifest) {
  const std::filesystem::path path = folder / kStateFile;
  const FileDigest& expected = manifest.files.at(kStateFile);
  if (auto size = check_size(path, expected); !size) return tl::make_unexpected(size.error());
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(as_checkpoint_error(text.error(), path));
  if (auto good = check_digest(path, expected, digest_of_text(*text)); !good) return tl::make_unexpected(good.error());
  return state_from(*text, manifest, path);
}

Result<void> verify_file(const std::filesystem::path& path, const FileDigest& expected) {
  if (auto size = check_size(path, expected); !size) return size;
  const auto found = digest_of(path);
  if (!found) return tl::make_unexpected(as_checkpoint_error(found.error(), path));
  return check_digest(path, expected, *found);
}

// Reads each byte once: the checksum is that of the bytes that went into the tensors.
Result<TensorMap> read_tensors(const std::filesystem::path& path, const FileDigest& expected) {
  if (auto size = check_size(path, expected); !size) return tl::make_unexpected(size.error());
  auto file = read_safetensors(path);
  if (!file && file.error().code == ExitCode::kDataErr) {
    // Damage, or a layout that this release does not know: the checksum decides.
    if (auto whole = verify_file(path, expected); !whole) return tl::make_unexpected(whole.error());
    return fail(ExitCode::kCheckpoint,
                fmt::format("{}; its checksum is right: use the release that wrote it, or another checkpoint.dir",
                            file.error().message));
  }
  if (!file) return tl::make_unexpected(as_checkpoint_error(file.error(), path));
  if (auto good = check_digest(path, expected, file->digest); !good) return tl::make_unexpected(good.error());
  return std::move(file->tensors);
}

}  // namespace

Result<int64_t> write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder) {
  if (!checkpoint.tensors.contains(kModelTensors)) {
    return fail(ExitCode::kSoftware,
                fmt::format("{}: a checkpoint needs \"{}\" tensors", folder.string(), kModelTensors));
  }
  Manifest manifest;
  manifest.step = checkpoint.state.step;
  for (const auto& [stem, tensors] : checkpoint.tensors) {
    if (!is_tensor_file_stem(stem)) {
      return fail(ExitCode::kSoftware, fmt::format("{}: \"{}\" is no name for a tensor file", folder.string(), stem));
    }
    const std::string name = tensor_file_name(stem);
    // "pt": what Python's readers expect of tensors that PyTorch wrote.
    auto digest = write_safetensors(folder / name, tensors, {{"format", "pt"}});
    if (!digest) return tl::make_unexpected(digest.error());
    manifest.files[name] = std::move(*digest);
  }
  auto state = write_text(folder / kStateFile, to_json(checkpoint.state).dump(2) + "\n");
  if (!state) return tl::make_unexpected(state.error());
  manifest.files[kStateFile] = std::move(*state);

  int64_t bytes = 0;
  for (const auto& [name, digest] : manifest.files) bytes += digest.bytes;
  const auto written = write_text(folder / kManifestFile, to_text(manifest));
  if (!written) return tl::make_unexpected(written.error());
  if (auto synced = sync_folder(folder); !synced) return tl::make_unexpected(synced.error());
  return bytes + written->bytes;
}

Result<int64_t> verify_checkpoint(const std::filesystem::path& folder) {
  const auto manifest = read_manifest(folder);
  if (!manifest) return tl::make_unexpected(manifest.error());
  const auto state = read_state(folder, *manifest);
  if (!state) return tl::make_unexpected(state.error());
  for (const auto& [name, expected] : manifest->files) {
    if (name == kStateFile) continue;
    if (auto good = verify_file(folder / name, expected); !good) return tl::make_unexpected(good.error());
  }
  return manifest->step;
}

Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder) {
  const auto manifest = read_manifest(folder);
  if (!manifest) return tl::make_unexpected(manifest.error());
  auto state = read_state(folder, *manifest);
  if (!state) return tl::make_unexpected(state.error());
  Checkpoint checkpoint{.state = std::move(*state), .tensors = {}};
  for (const auto& [name, expected] : manifest->files) {
    if (name == kStateFile) continue;
    const std::optional<std::string> stem = tensor_file_stem(name);
    if (!stem) {  // of a later release
      if (auto good = verify_file(folder / name, expected); !good) return tl::make_unexpected(good.error());
      continue;
    }
    auto tensors = read_tensors(folder / name, expected);
    if (!tensors) return tl::make_unexpected(tensors.error());
    checkpoint.tensors.emplace(*stem, std::move(*tensors));
  }
  return checkpoint;
}

}  // namespace oarlock
