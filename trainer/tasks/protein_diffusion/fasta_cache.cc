#include "trainer/tasks/protein_diffusion/fasta_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cerrno>
#include <string>

#include "common/files.h"
#include "trainer/data/derived_folder.h"

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
  const fs::path cache = conversion.folder.parent_path();
  std::error_code ignored;
  if (fs::exists(conversion.folder, ignored)) return {};
  if (Result<void> made = make_writable_folder(cache); !made) {
    made.error().message += "; set data.cache to a folder that can be written to";
    return made;
  }
  return make_folder_once(conversion.folder, [&](const fs::path& part) {
    return convert_fasta(conversion.fasta, conversion.filter, conversion.held_out, part, log)
        .map([&](const ConversionCounts& counts) { report(conversion, counts, log); });
  });
}

}  // namespace oarlock
