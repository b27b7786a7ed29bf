#include "trainer/data/source_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/work_progress.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr auto kLogInterval = std::chrono::seconds(30);

// A hash of 128 bits of a sequence of bytes.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }

  void add(std::string_view bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::string digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

using BlockReader = std::function<void(std::string_view block)>;

Result<void> read_blocks(const fs::path& path, std::string& buffer, const BlockReader& use) {
  ASSIGN_OR_RETURN(const FileDescriptor file, open_regular_file(path));
  buffer.resize(kBlockBytes);
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
    if (got == 0) return {};
    use({buffer.data(), static_cast<size_t>(got)});
  }
}

std::string status_of(const struct stat& file) {
  return fmt::format("{} {} {}.{:09} {}.{:09}", file.st_size, file.st_ino, file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
                     file.st_ctim.tv_sec, file.st_ctim.tv_nsec);
}

}  // namespace

std::string hash_of(std::string_view content) {
  Hasher hasher;
  hasher.add(content);
  return hasher.digest();
}

Result<std::string> hash_of_file(const fs::path& path) {
  Hasher hasher;
  std::string buffer;
  return read_blocks(path, buffer, [&](std::string_view block) { hasher.add(block); }).map([&] {
    return hasher.digest();
  });
}

Result<SourceFiles> SourceFiles::list(const std::vector<fs::path>& paths) {
  SourceFiles sources;
  for (const fs::path& path : paths) {
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error).lexically_normal();
    const fs::path root = absolute.has_filename() ? absolute : absolute.parent_path();
    RETURN_IF_ERROR(sources.add(error ? path : root, root.filename().string(), /*is_root=*/true));
  }
  return sources;
}

Result<void> SourceFiles::add(const fs::path& path, const std::string& name, bool is_root) {
  struct stat file{};
  if (::stat(path.c_str(), &file) != 0) {
    if (!is_root && errno == ENOENT) return {};  // a broken link, or removed in the meantime
    return fail_errno(errno, fmt::format("{}: cannot be opened", path.string()));
  }
  if (S_ISREG(file.st_mode)) {
    files_.push_back({.name = name, .path = path, .size = file.st_size, .status = status_of(file)});
    return {};
  }
  if (!S_ISDIR(file.st_mode))
    return is_root ? fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", path.string())) : Result<void>();
  const std::pair<uint64_t, uint64_t> directory{file.st_dev, file.st_ino};
  if (std::ranges::find(parents_, directory) != parents_.end()) return {};  // a link to a directory that contains it
  std::vector<fs::path> entries;
  if (const std::error_code error = visit_directory(path, [&](const fs::path& entry) { entries.push_back(entry); });
      error)
    return fail_errno(error.value(), fmt::format("{}: cannot be read", path.string()));
  std::sort(entries.begin(), entries.end());
  parents_.push_back(directory);
  for (const fs::path& entry : entries) {
    RETURN_IF_ERROR(add(entry, name + "/" + entry.filename().string(), /*is_root=*/false));
  }
  parents_.pop_back();
  return {};
}

std::string SourceFiles::state() const {
  Hasher hasher;
  for (const File& file : files_) hasher.add(fmt::format("{}\n{}\n", file.path.string(), file.status));
  return hasher.digest();
}

Result<std::string> SourceFiles::digest(const Logger& log) const {
  int64_t total = 0;
  for (const File& file : files_) total += file.size;
  int64_t done = 0;
  auto next_log = steady_clock::now() + kLogInterval;
  Hasher hasher;
  std::string buffer;
  for (const File& file : files_) {
    int64_t size = 0;
    hasher.add(fmt::format("{}\n", file.name));
    RETURN_IF_ERROR(read_blocks(file.path, buffer, [&](std::string_view block) {
      hasher.add(block);
      size += std::ssize(block);
      done += std::ssize(block);
      report_work(LongWork::kPrepareData, done, std::max(done, total));
      if (steady_clock::now() < next_log) return;
      log.info("reading the data to find out whether they are already prepared",
               {{"file", file.path.string()}, {"bytes", done}, {"of", total}});
      next_log = steady_clock::now() + kLogInterval;
    }));
    hasher.add(fmt::format("\n{}\n", size));
  }
  return hasher.digest();
}

}  // namespace oarlock
