// Converts FASTA files to packed tokens, once. A conversion is kept in FILE.oarlock (cache_directory.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/cache_directory.h"
#include "workloads/protein_diffusion/config.h"

namespace oarlock::protein_diffusion {

struct ConversionCounts {
  int64_t records = 0;
  int64_t train = 0;
  int64_t eval = 0;
  int64_t empty = 0;
  int64_t too_short = 0;
  int64_t too_long = 0;
  int64_t too_many_unknown = 0;  // records
  int64_t unknown_residues = 0;  // residues of converted records that were dropped or became <unk>
};

// Converts a file in one pass and with little memory to `directory`/train and `directory`/eval, which are
// PackedRecords. The directory must exist. Fails with kNoInput, with kDataErr naming file and line, or with kDataErr if
// no record passes.
Result<ConversionCounts> convert_fasta(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                       const HeldOut& held_out, const std::filesystem::path& directory,
                                       const Logger& log);

// Opens the conversion of a file, and converts the file if there is none: an entry with the files of convert_fasta().
// `cache` is the directory that contains FILE.oarlock; empty: the directory of the file. Logs the number of skipped
// records. Fails as convert_fasta() and open_cache_entry().
Result<CacheEntry> open_conversion(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                   const HeldOut& held_out, const std::filesystem::path& cache, const Logger& log);

}  // namespace oarlock::protein_diffusion
