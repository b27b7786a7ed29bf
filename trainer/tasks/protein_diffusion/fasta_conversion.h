// From FASTA to packed tokens, in one pass and little memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/error.h"
#include "common/log.h"

namespace oarlock {

enum class UnknownResidues {
  kDrop,   // as the tokenizer of the Python original does
  kToken,  // <unk>
};

// Which records are taken, and as what. The length is that of the record as it stands there.
struct SequenceFilter {
  int64_t min_length = 20;
  int64_t max_length = 512;
  int64_t max_sequences = 0;  // the first so many that pass; 0: all
  UnknownResidues unknown_residues = UnknownResidues::kDrop;
  double max_unknown = 0.05;  // of a record's residues; a record with more is skipped
};

// Which of them are held out: those whose tokens, hashed with the seed, fall below the fraction. So a sequence is on
// the same side in every file, and a duplicate of a training sequence is never held out.
struct HeldOut {
  double fraction = 0;
  int64_t seed = 0;
};

struct ConversionCounts {
  int64_t records = 0;
  int64_t train = 0;
  int64_t eval = 0;
  int64_t empty = 0;
  int64_t too_short = 0;
  int64_t too_long = 0;
  int64_t too_many_unknown = 0;  // records
  int64_t unknown_residues = 0;  // in the records that were taken: dropped, or <unk>
};

// Writes `folder`/train and `folder`/eval as PackedBytes. The folder exists. kNoInput, kDataErr with file and line,
// kDataErr where no record passes.
Result<ConversionCounts> convert_fasta(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                       const HeldOut& held_out, const std::filesystem::path& folder, const Logger& log);

}  // namespace oarlock
