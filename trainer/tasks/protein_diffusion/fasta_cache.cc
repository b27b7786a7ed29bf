#include "trainer/tasks/protein_diffusion/fasta_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "common/file_descriptor.h"
#include "common/files.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;  // of what convert_fasta() writes

std::string hash_of(const struct stat& file, const SequenceFilter& filter, const HeldOut& held_out) {
  const std::string all =
      fmt::format("{} {} {}.{} {} {} {} {} {} {} {}", kFormat, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
                  filter.min_length, filter.max_length, filter.max_sequences, static_cast<int>(filter.unknown_residues),
                  filter.max_unknown, held_out.fraction, held_out.seed);
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

// Waits until no other process holds it.
Result<FileDescriptor> lock(const fs::path& folder) {
  const fs::path path = folder / "lock";
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be created", path.string()));
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail_errno(errno, fmt::format("{}: cannot be locked", path.string()));
  }
  return file;
}

// What a process that was killed left there; nobody else is at work under the lock.
void remove_leftovers(const fs::path& cache) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache, ignored)) {
    if (entry.path().extension() == ".part") fs::remove_all(entry.path(), ignored);
  }
}

Result<void> publish(const fs::path& part, const fs::path& folder) {
  if (::rename(part.c_str(), folder.c_str()) != 0)
    return fail_errno(errno, fmt::format("{}: cannot be renamed to {}", part.string(), folder.string()));
  return sync_folder(folder.parent_path());
}

void report(const Conversion& conversion, const ConversionCounts& counts, const Logger& log) {
  log.info("sequences converted", {{"file", conversion.fasta.string()},
                                   {"to", conversion.folder.string()},
                                   {"records", counts.records},
                                   {"train", counts.train},
                                   {"eval", counts.eval},
                                   {"empty", counts.empty},
                                   {"too_short", counts.too_short},
                                   {"too_long", counts.too_long},
                                   {"too_many_unknown", counts.too_many_unknown},
                                   {"unknown_residues", counts.unknown_residues}});
}

}  // namespace

Result<Conversion> locate_conversion(const fs::path& fasta, const SequenceFilter& filter, const HeldOut& held_out,
                                     const fs::path& cache) {
  struct stat file{};
  if (::stat(fasta.c_str(), &file) != 0) return fail_errno(errno, fmt::format("{}: cannot be opened", fasta.string()));
  if (!S_ISREG(file.st_mode)) return fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", fasta.string()));
  const fs::path parent = cache.empty() ? fasta.parent_path() : cache;
  return Conversion{.fasta = fasta,
                    .filter = filter,
                    .held_out = held_out,
                    .folder = parent / (fasta.filename().string() + ".oarlock") / hash_of(file, filter, held_out)};
}

Result<void> convert_once(const Conversion& conversion, const Logger& log) {
  std::error_code ignored;
  const fs::path cache = conversion.folder.parent_path();
  if (fs::exists(conversion.folder, ignored)) return {};
  if (Result<void> made = make_writable_folder(cache); !made) {
    made.error().message += "; set data.cache to a folder that can be written to";
    return made;
  }
  const Result<FileDescriptor> locked = lock(cache);
  if (!locked) return tl::make_unexpected(locked.error());
  if (fs::exists(conversion.folder, ignored)) return {};
  remove_leftovers(cache);
  const fs::path part = conversion.folder.string() + ".part";
  if (const Result<void> made = make_writable_folder(part); !made) return made;
  const Result<ConversionCounts> counts =
      convert_fasta(conversion.fasta, conversion.filter, conversion.held_out, part, log);
  const Result<void> published = counts ? publish(part, conversion.folder) : tl::make_unexpected(counts.error());
  if (published) {
    report(conversion, *counts, log);
  } else {
    fs::remove_all(part, ignored);
  }
  return published;
}

}  // namespace oarlock
