#include "trainer/checkpoint/checkpoint.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "common/files.h"
#include "trainer/checkpoint/digest_file.h"

namespace oarlock {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "oarlock-checkpoint";
constexpr int kFormatVersion = 2;
constexpr char kStateFile[] = "state.json";
constexpr char kTensorSuffix[] = ".safetensors";

struct Manifest {
  int64_t step = 0;
  std::map<std::string, FileDigest> files;
};

tl::unexpected<Error> damaged(const std::filesystem::path& path, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {}", path.string(), what));
}

bool is_tensor_file_stem(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// "model" from "model.safetensors"; nothing for another name.
std::optional<std::string> tensor_file_stem(std::string_view file) {
  const std::string_view suffix = kTensorSuffix;
  if (!file.ends_with(suffix)) return std::nullopt;
  file.remove_suffix(suffix.size());
  return is_tensor_file_stem(file) ? std::optional<std::string>(file) : std::nullopt;
}

// The object has exactly these keys.
bool has_exactly(const json& object, std::initializer_list<const char*> keys) {
  return object.is_object() && object.size() == keys.size() &&
         std::all_of(keys.begin(), keys.end(), [&](const char* key) { return object.contains(key); });
}

Result<json> read_json(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return damaged(path, "not JSON");
  return value;
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

Result<CheckpointState> state_from(const json& value, const std::filesystem::path& path) {
  if (!has_exactly(value, {"step", "high_water_step", "epoch", "epoch_samples", "world_size", "uid", "attempt",
                           "sections", "extra"})) {
    return damaged(path,
                   "expected exactly step, high_water_step, epoch, epoch_samples, world_size, uid, attempt, sections "
                   "and extra");
  }
  for (const char* key : {"step", "high_water_step", "epoch", "epoch_samples", "world_size", "attempt"}) {
    if (!value[key].is_number_unsigned()) return damaged(path, fmt::format("{} is not a count", key));
  }
  if (!value["uid"].is_string() || !value["sections"].is_object() || !value["extra"].is_object())
    return damaged(path, "uid, sections or extra has the wrong type");
  CheckpointState state;
  state.step = value["step"];
  state.high_water_step = value["high_water_step"];
  state.epoch = value["epoch"];
  state.epoch_samples = value["epoch_samples"];
  state.world_size = value["world_size"];
  state.owner = {.uid = value["uid"], .attempt = value["attempt"]};
  state.sections = value["sections"];
  state.extra = value["extra"];
  return state;
}

std::string to_text(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, digest] : manifest.files) {
    files[name] = {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}};
  }
  const json value{{"format", kFormat}, {"version", kFormatVersion}, {"step", manifest.step}, {"files", files}};
  return value.dump(2) + "\n";
}

Result<Manifest> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestFile;
  const auto value = read_json(path);
  if (!value) {
    if (value.error().code != ExitCode::kNoInput) return tl::make_unexpected(value.error());
    return fail(ExitCode::kNoInput,
                fmt::format("{}: it has no {}: it was not written to its end", folder.string(), kManifestFile));
  }
  if (!has_exactly(*value, {"format", "version", "step", "files"}) || (*value)["format"] != kFormat) {
    return damaged(path, fmt::format("not the manifest of an {}", kFormat));
  }
  if ((*value)["version"] != kFormatVersion) {
    return damaged(path,
                   fmt::format("format version {} is not {}: it was written by another version of oarlock-trainer",
                               (*value)["version"].dump(), kFormatVersion));
  }
  if (!(*value)["step"].is_number_unsigned() || !(*value)["files"].is_object()) {
    return damaged(path, "step or files has the wrong type");
  }
  Manifest manifest{.step = (*value)["step"], .files = {}};
  for (const auto& [name, entry] : (*value)["files"].items()) {
    if (name != kStateFile && !tensor_file_stem(name))
      return damaged(path, fmt::format("file name {} is not valid", json(name).dump()));
    if (!has_exactly(entry, {"bytes", "xxh3_128"}) || !entry["bytes"].is_number_unsigned() ||
        !entry["xxh3_128"].is_string()) {
      return damaged(path, fmt::format("the entry of {} is not valid", name));
    }
    manifest.files[name] = {.bytes = entry["bytes"], .xxh3_128 = entry["xxh3_128"]};
  }
  for (const std::string& name : {std::string(kStateFile), std::string(kModelTensors) + kTensorSuffix}) {
    if (!manifest.files.contains(name)) return damaged(path, fmt::format("it does not list {}", name));
  }
  return manifest;
}

Result<Manifest> verified_manifest(const std::filesystem::path& folder) {
  const auto manifest = read_manifest(folder);
  if (!manifest) return tl::make_unexpected(manifest.error());
  for (const auto& [name, expected] : manifest->files) {
    const std::filesystem::path path = folder / name;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) return damaged(path, fmt::format("the manifest lists it, but: {}", error.message()));
    if (static_cast<int64_t>(size) != expected.bytes) {
      return damaged(path, fmt::format("expected {} bytes, found {}", expected.bytes, size));
    }
    const auto found = digest_of(path);
    if (!found) return tl::make_unexpected(found.error());
    if (*found != expected) {
      return damaged(
          path, fmt::format("expected checksum {}, found {}: the file is damaged", expected.xxh3_128, found->xxh3_128));
    }
  }
  return manifest;
}

Result<FileDigest> write_text(const std::filesystem::path& path, const std::string& text) {
  auto file = DigestWriter::create(path);
  if (!file) return tl::make_unexpected(file.error());
  if (auto written = file->write(text); !written) return tl::make_unexpected(written.error());
  return file->finish();
}

}  // namespace

Result<int64_t> write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder) {
  if (!checkpoint.tensors.contains(kModelTensors)) {
    return fail(ExitCode::kSoftware,
                fmt::format("{}: a checkpoint needs \"{}\" tensors", folder.string(), kModelTensors));
  }
  Manifest manifest{.step = checkpoint.state.step, .files = {}};
  for (const auto& [stem, tensors] : checkpoint.tensors) {
    if (!is_tensor_file_stem(stem)) {
      return fail(ExitCode::kSoftware, fmt::format("{}: \"{}\" is no name for a tensor file", folder.string(), stem));
    }
    const std::string name = stem + kTensorSuffix;
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
  const auto manifest = verified_manifest(folder);
  if (!manifest) return tl::make_unexpected(manifest.error());
  const auto value = read_json(folder / kStateFile);
  if (!value) return tl::make_unexpected(value.error());
  const auto state = state_from(*value, folder / kStateFile);
  if (!state) return tl::make_unexpected(state.error());
  if (state->step != manifest->step) {
    return damaged(folder / kManifestFile,
                   fmt::format("it says step {}, {} says {}", manifest->step, kStateFile, state->step));
  }
  return manifest->step;
}

Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder) {
  if (auto valid = verify_checkpoint(folder); !valid) return tl::make_unexpected(valid.error());
  const auto manifest = read_manifest(folder);
  if (!manifest) return tl::make_unexpected(manifest.error());
  const auto value = read_json(folder / kStateFile);
  if (!value) return tl::make_unexpected(value.error());
  auto state = state_from(*value, folder / kStateFile);
  if (!state) return tl::make_unexpected(state.error());

  Checkpoint checkpoint{.state = std::move(*state), .tensors = {}};
  for (const auto& [name, digest] : manifest->files) {
    const std::optional<std::string> stem = tensor_file_stem(name);
    if (!stem) continue;
    auto file = read_safetensors(folder / name);
    if (!file) return tl::make_unexpected(file.error());
    checkpoint.tensors.emplace(*stem, std::move(file->tensors));
  }
  return checkpoint;
}

}  // namespace oarlock
