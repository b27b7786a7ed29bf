// Converts FASTA files to packed tokens, once. A conversion is kept as FILE.oarlock/HASH, where HASH is of the file's
// size and modification time and of every option that affects the content; a different filter therefore never finds
// stale files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/error.h"
#include "common/log.h"
#include "trainer/tasks/protein_diffusion/config.h"

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

// Converts a file in one pass and with little memory to `folder`/train and `folder`/eval, which are PackedRecords. The
// folder must exist. Fails with kNoInput, with kDataErr naming file and line, or with kDataErr if no record passes.
Result<ConversionCounts> convert_fasta(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                       const HeldOut& held_out, const std::filesystem::path& folder, const Logger& log);

// A conversion and its place in the cache.
struct Conversion {
  std::filesystem::path fasta;
  SequenceFilter filter;
  HeldOut held_out;
  std::filesystem::path folder;  // may not exist yet
};

// Determines the folder of a conversion. `cache` is the folder that contains FILE.oarlock; empty: the folder of the
// file. Fails with kNoInput if the file does not exist.
Result<Conversion> locate_conversion(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                     const HeldOut& held_out, const std::filesystem::path& cache);

// Converts the file unless its folder exists. The folder appears atomically with all its files, so an interrupted
// conversion leaves nothing that could be used. Waits while another process converts the same file. Logs the number of
// skipped records. Fails with kDataErr naming file and line, or with kCantCreate.
Result<void> convert_once(const Conversion& conversion, const Logger& log);

}  // namespace oarlock::protein_diffusion
