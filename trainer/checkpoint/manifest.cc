#include "trainer/checkpoint/manifest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr char kFormat[] = "oarlock-checkpoint";
constexpr std::string_view kTensorSuffix = ".safetensors";
constexpr size_t kMaxManifestBytes = size_t{16} << 20;

// A file name without a path, so that a manifest cannot name files outside of its directory.
bool is_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

// Returns a value for a message. Lists and objects are omitted, because their depth is unbounded.
std::string shown_scalar(const json& value) {
  return value.is_structured() ? "(nested)" : shortened(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

// A version that is not a number is one of a later release, too: a damaged file has no valid JSON with both members.
Result<void> check_version(const json& value, const fs::path& path) {
  if (!has_members(value, {"format", "version"}) || !value["format"].is_string())
    return damaged_checkpoint(path, fmt::format("not the manifest of an {}", kFormat));
  const json& version = value["version"];
  const bool is_known = value["format"] == kFormat && version.is_number_unsigned() && version >= kOldestFormatVersion &&
                        version <= kFormatVersion;
  if (is_known) return {};
  return fail(
      ExitCode::kCheckpoint,
      fmt::format("{}: {} version {} is not one that this oarlock-trainer reads ({} versions {} to {}); use the "
                  "release that wrote it or a later one, or another checkpoint.dir",
                  path.string(), shown_scalar(value["format"]), shown_scalar(version), kFormat, kOldestFormatVersion,
                  kFormatVersion));
}

}  // namespace

tl::unexpected<Error> damaged_checkpoint(const fs::path& path, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {}", path.string(), what));
}

tl::unexpected<Error> too_large_checkpoint(const fs::path& path, size_t limit) {
  return fail(
      ExitCode::kCheckpoint,
      fmt::format("{}: larger than the {} bytes that this oarlock-trainer reads; use the release that wrote it, "
                  "or another checkpoint.dir",
                  path.string(), limit));
}

tl::unexpected<Error> unknown_checkpoint(const fs::path& path, const std::string& what) {
  return fail(ExitCode::kCheckpoint, fmt::format("{}: the checksum is right, but {}; use the release that wrote it, or "
                                                 "another checkpoint.dir",
                                                 path.string(), what));
}

bool has_members(const json& object, std::initializer_list<const char*> keys) {
  return object.is_object() &&
         std::all_of(keys.begin(), keys.end(), [&](const char* key) { return object.contains(key); });
}

bool is_tensor_file_stem(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string tensor_file_name(const std::string& stem) { return stem + std::string(kTensorSuffix); }

std::optional<std::string> tensor_file_stem(std::string_view file) {
  if (!file.ends_with(kTensorSuffix)) return std::nullopt;
  file.remove_suffix(kTensorSuffix.size());
  return is_tensor_file_stem(file) ? std::optional<std::string>(file) : std::nullopt;
}

Error as_checkpoint_error(Error error, const fs::path& path) {
  switch (error.code) {
    case ExitCode::kDataErr:
    case ExitCode::kCheckpoint:
    case ExitCode::kTempFail:
      return error;
    case ExitCode::kNoPermission:
      error.message += fmt::format("; make it readable for uid {}, or use another checkpoint.dir", ::geteuid());
      return error;
    case ExitCode::kNoInput: {
      std::error_code ignored;
      if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found)
        return {ExitCode::kDataErr, std::move(error.message)};
      error.message += "; something else is in its place: put the checkpoint back, or move its directory away";
      return {ExitCode::kCheckpoint, std::move(error.message)};
    }
    default:  // I/O errors of a disk or a file server, and limits of this process: a restart may read it
      error.message += "; the checkpoint may be whole: nothing was changed, and a restart reads it again";
      return {ExitCode::kTempFail, std::move(error.message)};
  }
}

Error as_save_error(Error error) {
  if (error.code == ExitCode::kSoftware) return error;
  const bool may_not = error.code == ExitCode::kCantCreate || error.code == ExitCode::kNoPermission;
  error.message += fmt::format(
      "; make checkpoint.dir writable for uid {}, free space or repair its file system, or use "
      "another one",
      ::geteuid());
  return {may_not ? ExitCode::kCantCreate : ExitCode::kIoErr, std::move(error.message)};
}

std::string to_text(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, digest] : manifest.files) {
    files[name] = {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}};
  }
  const json value{{"format", kFormat}, {"version", manifest.version}, {"step", manifest.step}, {"files", files}};
  return value.dump(2) + "\n";
}

Result<Manifest> read_manifest(const fs::path& directory) {
  const fs::path path = directory / kManifestFile;
  const auto text = read_regular_file(path, kMaxManifestBytes);
  if (!text && text.error().code == ExitCode::kDataErr) return too_large_checkpoint(path, kMaxManifestBytes);
  if (!text) {
    std::error_code ignored;
    if (fs::symlink_status(directory, ignored).type() == fs::file_type::not_found)
      return fail(ExitCode::kNoInput, text.error().message);
    // A link whose target is away, as of a disk that is not mounted, has no manifest either.
    const bool is_directory = fs::status(directory, ignored).type() == fs::file_type::directory;
    Error error = as_checkpoint_error(text.error(), is_directory ? path : directory);
    if (error.code == ExitCode::kDataErr)
      return damaged_checkpoint(directory, fmt::format("it has no {}: it was not written to its end", kManifestFile));
    return tl::make_unexpected(std::move(error));
  }
  const json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return damaged_checkpoint(path, "not JSON");
  RETURN_IF_ERROR(check_version(value, path));
  if (!has_members(value, {"step", "files"}) || !value["step"].is_number_unsigned() ||
      value["step"].get<uint64_t>() > INT64_MAX || !value["files"].is_object()) {
    return damaged_checkpoint(path, "step or files is missing or has the wrong type");
  }
  Manifest manifest{.version = value["version"], .step = value["step"], .files = {}};
  for (const auto& [name, entry] : value["files"].items()) {
    if (!is_file_name(name))
      return damaged_checkpoint(path, fmt::format("file name {} is not valid", shown_scalar(name)));
    if (!has_members(entry, {"bytes", "xxh3_128"}) || !entry["bytes"].is_number_unsigned() ||
        entry["bytes"].get<uint64_t>() > INT64_MAX || !entry["xxh3_128"].is_string()) {
      return damaged_checkpoint(path, fmt::format("the entry of {} is not valid", name));
    }
    manifest.files[name] = {.bytes = entry["bytes"], .xxh3_128 = entry["xxh3_128"]};
  }
  for (const std::string& name : {std::string(kStateFile), tensor_file_name("model")}) {
    if (!manifest.files.contains(name)) return damaged_checkpoint(path, fmt::format("it does not list {}", name));
  }
  return manifest;
}

}  // namespace oarlock
