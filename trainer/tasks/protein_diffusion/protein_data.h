// The section "data" of the task protein_diffusion, and the files that it names.
#pragma once

#include <cstdint>
#include <string>

#include "common/error.h"
#include "common/log.h"
#include "trainer/config/fields.h"
#include "trainer/tasks/protein_diffusion/sequences.h"

namespace oarlock {

enum class UnknownResidues { kDrop, kToken };

struct ProteinDataConfig {
  std::string path;       // FASTA, plain or gzip, told by content
  std::string eval_path;  // sequences to evaluate on; "": a part of `path`
  std::string cache;      // folder of the converted files; "": beside `path`
  int64_t min_length = 20;
  int64_t max_length = 512;
  int64_t max_sequences = 0;    // the first so many that pass; 0: all
  double eval_fraction = 0.05;  // of `path`, where there is no eval_path
  int64_t split_seed = 42;
  UnknownResidues unknown_residues = UnknownResidues::kDrop;
  double max_unknown = 0.05;  // of a record's residues; a record with more is skipped
};

void describe(ProteinDataConfig& config, Fields& fields);

// Converts the FASTA files to packed tokens, with little memory, unless that was done before; for Task::prepare_data().
// Waits for another process that is at it in the same folder. What was skipped is counted and logged.
// kNoInput, kDataErr with file and line, kCantCreate.
Result<void> prepare_proteins(const ProteinDataConfig& config, const Logger& log);

struct ProteinSplits {
  Sequences train;
  Sequences eval;
};

// What prepare_proteins() made, memory-mapped; for Task::prepare(). kDataErr where nothing passed the filter.
Result<ProteinSplits> open_proteins(const ProteinDataConfig& config);

}  // namespace oarlock
