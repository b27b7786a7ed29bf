#include "trainer/data/cache_manifest.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "trainer/data/source_files.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kManifestFormat = 1;
constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr size_t kMaxStates = 256;  // of nodes with a copy of the sources each

std::string times_of(const struct stat& file) {
  return fmt::format("{}.{:09} {}.{:09}", file.st_mtim.tv_sec, file.st_mtim.tv_nsec, file.st_ctim.tv_sec,
                     file.st_ctim.tv_nsec);
}

}  // namespace

bool CacheManifest::has_state(std::string_view state) const { return std::ranges::find(states, state) != states.end(); }

void CacheManifest::add_state(const std::string& state) {
  states.push_back(state);
  if (states.size() > kMaxStates) states.erase(states.begin());
}

std::string CacheManifest::content_digest() const {
  std::string all;
  for (const CachedFile& file : files) all += fmt::format("{} {} {}\n", file.name, file.size, file.checksum);
  return hash_of(all);
}

std::optional<CacheManifest> read_cache_manifest(const fs::path& entry) try {
  const Result<std::string> content = read_regular_file(entry / kCacheManifest, kMaxBytes);
  if (!content) return std::nullopt;
  const Json json = parse_untrusted_json(*content, kMaxBytes);
  if (json.at("format") != kManifestFormat) return std::nullopt;
  CacheManifest manifest{.kind = json.at("kind"),
                         .version = json.at("version"),
                         .options = json.at("options"),
                         .sources = json.at("sources"),
                         .digest = json.at("digest"),
                         .states = json.at("states"),
                         .files = {}};
  for (const Json& file : json.at("files")) {
    manifest.files.push_back(
        {.name = file.at("name"), .size = file.at("size"), .times = file.at("times"), .checksum = file.at("checksum")});
    if (manifest.files.back().name.find('/') != std::string::npos) return std::nullopt;
  }
  return manifest;
} catch (const Json::exception&) {
  return std::nullopt;
}

Result<void> write_cache_manifest(const fs::path& entry, const CacheManifest& manifest) {
  Json files = Json::array();
  for (const CachedFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"size", file.size}, {"times", file.times}, {"checksum", file.checksum}});
  const Json json = {{"format", kManifestFormat},   {"kind", manifest.kind},
                     {"version", manifest.version}, {"options", manifest.options},
                     {"sources", manifest.sources}, {"digest", manifest.digest},
                     {"states", manifest.states},   {"files", files}};
  return write_file_atomically(entry / kCacheManifest, dump_json(json) + "\n");
}

Result<std::vector<CachedFile>> describe_files(const fs::path& entry) {
  std::vector<CachedFile> files;
  const std::error_code error = visit_directory(entry, [&](const fs::path& path) {
    files.push_back({.name = path.filename().string(), .times = {}, .checksum = {}});
  });
  if (error) return fail_errno(error.value(), fmt::format("{}: cannot be read", entry.string()));
  std::ranges::sort(files, {}, &CachedFile::name);
  for (CachedFile& file : files) {
    const fs::path path = entry / file.name;
    ASSIGN_OR_RETURN(file.checksum, hash_of_file(path));
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
    file.size = status.st_size;
    file.times = times_of(status);
  }
  return files;
}

std::optional<std::string> find_damage(const fs::path& entry, CacheManifest& manifest) {
  for (CachedFile& file : manifest.files) {
    const fs::path path = entry / file.name;
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return file.name + " is missing";
    if (status.st_size != file.size)
      return fmt::format("{} has {} bytes instead of {}", file.name, status.st_size, file.size);
    if (times_of(status) == file.times) continue;
    const Result<std::string> checksum = hash_of_file(path);
    if (!checksum) return checksum.error().message;
    if (*checksum != file.checksum) return file.name + " has another checksum";
    file.times = times_of(status);
  }
  return std::nullopt;
}

}  // namespace oarlock
