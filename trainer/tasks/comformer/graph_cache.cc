#include "trainer/tasks/comformer/graph_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/cpu_count.h"
#include "common/files.h"
#include "trainer/data/derived_folder.h"
#include "trainer/data/graph_archive.h"
#include "trainer/data/index_slice.h"
#include "trainer/data/mapped_file.h"
#include "trainer/tasks/comformer/crystal_source.h"
#include "trainer/tasks/comformer/graph_conversion.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;  // of the graphs: another one when the same file would give others

// What decides about the graphs, besides the file.
std::string options_of(const CrystalDataConfig& config, int64_t targets) {
  const CrystalGraphOptions& graph = config.graph;
  return fmt::format("{} {} {} {} {} {} {} {}", kFormat, config.target_property, targets, config.index,
                     graph.nearest.count, graph.nearest.cutoff, static_cast<int>(graph.nearest.ties),
                     graph.lattice_loops);
}

std::string hash_of(const std::string& text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

fs::path cache_of(const CrystalDataConfig& config) {
  const fs::path file = config.path;
  const fs::path parent = config.cache.empty() ? file.parent_path() : fs::path(config.cache);
  return parent / (file.filename().string() + ".oarlock");
}

Result<fs::path> link_of(const CrystalDataConfig& config, int64_t targets) {
  struct stat file{};
  if (::stat(config.path.c_str(), &file) != 0)
    return fail_errno(errno, fmt::format("{}: cannot be opened (data.path)", config.path));
  if (!S_ISREG(file.st_mode)) return fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", config.path));
  const std::string key =
      fmt::format("{} {}.{} {}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec, options_of(config, targets));
  return cache_of(config) / ("file-" + hash_of(key));
}

Result<fs::path> folder_of(const CrystalDataConfig& config, int64_t targets) {
  const Result<MappedFile> file = MappedFile::open(config.path, MappedFile::Access::kSequential);
  if (!file) return tl::make_unexpected(file.error());
  const XXH128_hash_t content = XXH3_128bits(file->bytes().data(), file->bytes().size());
  const std::string key = fmt::format("{:016x}{:016x} {}", content.high64, content.low64, options_of(config, targets));
  return cache_of(config) / ("graphs-" + hash_of(key));
}

Result<void> build(const CrystalDataConfig& config, int64_t targets, const fs::path& folder, const Logger& log) {
  const auto source =
      open_crystals({.path = config.path, .target_property = config.target_property, .targets = targets});
  if (!source) return tl::make_unexpected(source.error());
  return IndexSlice::parse(config.index)
      .and_then([&](const IndexSlice& slice) { return slice.of((*source)->size()); })
      .and_then([&](const std::vector<int64_t>& structures) {
        return convert_crystals(**source, structures, targets, config.graph, usable_cpus(), folder, log);
      });
}

// Replaces what the name led to before.
Result<void> make_link(const fs::path& link, const fs::path& target) {
  const fs::path made = link.string() + fmt::format(".{}", ::getpid());
  std::error_code error;
  fs::remove(made, error);
  fs::create_directory_symlink(target, made, error);
  if (!error) fs::rename(made, link, error);
  if (error) return fail(ExitCode::kCantCreate, fmt::format("{}: {}", link.string(), error.message()));
  return sync_folder(link.parent_path());
}

// A folder of this process's own, removed at the end; what is mapped of it stays.
class ScratchFolder {
 public:
  ScratchFolder() : path_((fs::temp_directory_path() / "oarlock-graphs-XXXXXX").string()) {
    made_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_;
};

Result<GraphCollation> open_archive(const fs::path& folder) {
  return open_graph_archive(folder).and_then(
      [](GraphArrays arrays) { return GraphCollation::create(std::move(arrays)); });
}

}  // namespace

Result<void> prepare_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log) {
  if (!config.cache_graphs) return {};
  const Result<fs::path> link = link_of(config, targets);
  if (!link) return tl::make_unexpected(link.error());
  std::error_code ignored;
  if (fs::exists(*link, ignored)) return {};
  if (Result<void> made = make_writable_folder(link->parent_path()); !made) {
    made.error().message += "; set data.cache to a folder that can be written to";
    return made;
  }
  const Result<fs::path> folder = folder_of(config, targets);
  if (!folder) return tl::make_unexpected(folder.error());
  return make_folder_once(*folder, [&](const fs::path& part) { return build(config, targets, part, log); })
      .and_then([&] { return make_link(*link, folder->filename()); });
}

Result<GraphCollation> open_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log) {
  if (config.cache_graphs) {
    return link_of(config, targets).and_then(open_archive);
  }
  const ScratchFolder folder;
  if (!folder.made()) return fail_errno(errno, fmt::format("{}: cannot be made", folder.path()));
  return build(config, targets, folder.path(), log).and_then([&] { return open_archive(folder.path()); });
}

}  // namespace oarlock
