// The section "data" of the task protein_diffusion, and the files that it names.
#pragma once

#include <cstdint>
#include <string>

#include "common/error.h"
#include "common/log.h"
#include "trainer/config/fields.h"
#include "trainer/tasks/protein_diffusion/fasta_conversion.h"
#include "trainer/tasks/protein_diffusion/sequences.h"

namespace oarlock {

struct ProteinDataConfig {
  std::string path = "/usr/share/doc/mmseqs2/example-data/DB.fasta.gz";  // Debian's mmseqs2-examples
  std::string eval_path;                                                 // "": a part of `path` is held out
  std::string cache;                                                     // "": beside each file
  SequenceFilter filter;                                                 // max_sequences holds for `path` only
  HeldOut held_out{.fraction = 0.05, .seed = 42};
  int64_t eval_sequences = 0;  // the first so many; 0: all
};

void describe(ProteinDataConfig& config, Fields& fields);

// Converts the FASTA files to packed tokens unless that was done before; for Task::prepare_data(), on one rank of each
// node. Waits while another process is at it in the same folder. What was skipped is counted and logged. The files of a
// conversion appear at once, as FILE.oarlock/HASH, where the hash is of the file's size and time of change and of what
// decides about its content; so another filter finds no stale files. kNoInput, kDataErr with file and line,
// kCantCreate.
Result<void> prepare_proteins(const ProteinDataConfig& config, const Logger& log);

struct ProteinSplits {
  Sequences train;
  Sequences eval;
};

// What prepare_proteins() made, memory-mapped; for Task::prepare(). kDataErr where a side has no sequence.
Result<ProteinSplits> open_proteins(const ProteinDataConfig& config);

}  // namespace oarlock
