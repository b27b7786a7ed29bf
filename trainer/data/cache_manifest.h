// cache.json: the description of a cache entry (cache_directory.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock {

inline constexpr char kCacheManifest[] = "cache.json";
inline constexpr char kCacheLock[] = "cache.lock";

struct CachedFile {
  std::string name;
  int64_t size = 0;
  std::string times;     // of modification and status change, which no program can set back
  std::string checksum;  // see hash_of_file()
};

struct CacheManifest {
  std::string kind;
  int version = 0;
  std::string options;               // their hash
  std::vector<std::string> sources;  // absolute paths
  std::string digest;                // SourceFiles::digest()
  std::vector<std::string> states;   // SourceFiles::state() of the sources and of their copies, newest last
  std::vector<CachedFile> files;     // sorted by name

  bool has_state(std::string_view state) const;
  // Adds a state. The oldest one is dropped when there are many.
  void add_state(const std::string& state);
  // Hash of names and contents of the files.
  std::string content_digest() const;
};

// Returns nothing if the file does not exist, cannot be read or is damaged.
std::optional<CacheManifest> read_cache_manifest(const std::filesystem::path& entry);

// Replaces the manifest atomically, and syncs it. Fails as write_file_atomically().
Result<void> write_cache_manifest(const std::filesystem::path& entry, const CacheManifest& manifest);

// Describes the files of an entry that was just written and synced. Fails as fail_errno().
Result<std::vector<CachedFile>> describe_files(const std::filesystem::path& entry);

// Compares the files with their description, and updates the times there. The content is read only if the times differ.
// Returns the reason if a file is damaged or missing: one line without the path of the entry.
std::optional<std::string> find_damage(const std::filesystem::path& entry, CacheManifest& manifest);

}  // namespace oarlock
