// Directories of derived files, such as converted data sets, which are built once and shared by all processes.
//
//   FILE.oarlock/KIND-HASH/    an entry: the files of a conversion, with
//     cache.json               what it was made from, and the size, times and checksum of each file
//     cache.lock               locked (shared) by the processes that use the entry
//   FILE.oarlock/lock          locked by the process that builds an entry
//   FILE.oarlock/*.part        an entry that is being built, or the rest of one
//
// An entry belongs to the content of its sources. A process finds it by the state of the files (paths, sizes, times,
// inodes) without reading them, and by their digest if the state is not known, for example on another node.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "common/log.h"

namespace oarlock {

// Writes the files of an entry, without subdirectories, to the existing directory `part`.
using CacheFill = std::function<Result<void>(const std::filesystem::path& part)>;

// What determines the content of an entry.
struct CacheKey {
  std::filesystem::path directory;             // of the entries; see cache_directory()
  std::vector<std::filesystem::path> sources;  // every file that is read; a directory means all files below it
  std::string kind;                            // of the entry, for example "graphs": the beginning of its name
  int version = 1;                             // of the converter: increases when its output changes
  std::string options;                         // everything else that affects the content
};

// Returns PARENT/NAME.oarlock for a source with this name. PARENT is `cache`, or the directory of the source if that is
// empty.
std::filesystem::path cache_directory(const std::filesystem::path& source, const std::filesystem::path& cache);

// A complete entry. It is not removed as long as this object exists, if the file system supports locks.
class CacheEntry {
 public:
  const std::filesystem::path& path() const { return path_; }

  // Returns a hash of the names and contents of its files: the same on every node that has the same data.
  const std::string& content_digest() const { return content_digest_; }

 private:
  friend class CacheDirectory;
  CacheEntry(std::filesystem::path path, std::string content_digest, FileDescriptor lock)
      : path_(std::move(path)), content_digest_(std::move(content_digest)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  std::string content_digest_;
  FileDescriptor lock_;
};

// Opens the entry of a key. Calls `fill` to build it if it does not exist, or if a file of it has another size or
// checksum than it had when it was built; checksums are computed only for files whose times changed. An entry appears
// atomically, with all files synced. Only one process builds in a directory at a time, and the others log that they
// wait. Removes the rest of killed processes, and entries of the same sources with an earlier content or version that
// no process uses. Without support for locks, entries may be built twice, and are not removed; this is logged.
//
// Returns the error of `fill`; kNoInput or another code if the sources cannot be read; kTempFail if they changed while
// they were converted; kCantCreate or a similar code, with the advice to set data.cache, if the directory is not
// writable. A read-only directory that contains the entry suffices.
Result<CacheEntry> open_cache_entry(const CacheKey& key, const Logger& log, const CacheFill& fill);

// Does nothing if `directory` exists. Otherwise creates its parent, calls `fill` to write into a new directory, and
// renames that to `directory` after syncing its files, so that a directory is either absent or complete. Only one
// process at a time builds a directory in a parent; others log that they wait. Removes the .part directories of
// processes that were killed. Returns the error of `fill`, or kCantCreate or a similar code if the parent is not
// writable. Does not check whether the directory is out of date or damaged: see open_cache_entry().
Result<void> build_cache_directory(const std::filesystem::path& directory, const Logger& log, const CacheFill& fill);

}  // namespace oarlock
