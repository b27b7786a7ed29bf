// Where the conversions of FASTA files are kept, so that each is made once: FILE.oarlock/HASH, where the hash is of the
// file's size and time of change and of what decides about the content. The files of a conversion appear at once.
#pragma once

#include <filesystem>

#include "common/error.h"
#include "common/log.h"
#include "trainer/tasks/protein_diffusion/fasta_conversion.h"

namespace oarlock {

struct Conversion {
  std::filesystem::path fasta;
  SequenceFilter filter;
  HeldOut held_out;
  std::filesystem::path folder;  // where it is, or will be
};

// `cache`: the folder of FILE.oarlock; empty: that of the file. kNoInput: no such file.
Result<Conversion> locate_conversion(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                     const HeldOut& held_out, const std::filesystem::path& cache);

// Converts unless that was done before. Waits while another process is at it; one that was killed leaves nothing that
// could be taken for a conversion. What was skipped is counted and logged. kDataErr with file and line, kCantCreate.
Result<void> convert_once(const Conversion& conversion, const Logger& log);

}  // namespace oarlock
