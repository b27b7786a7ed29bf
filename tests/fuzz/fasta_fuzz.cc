// Reads a FASTA file, plain or gzip. Line numbers must increase, and sequences may contain only letters, '*' and '-'.
#include <algorithm>

#include "tests/fuzz/input.h"
#include "workloads/formats/fasta.h"

using namespace oarlock;

namespace {

bool is_residue(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '*' || c == '-'; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile input(fuzz::text_of(data, size));
  Result<FastaReader> reader = FastaReader::open(input.path());
  if (!reader) return 0;
  int64_t line = 0;
  while (true) {
    const auto record = reader->next();
    if (!record || !*record) break;
    fuzz::require((*record)->line > line && (*record)->sequence.size() <= FastaReader::kMaxLength);
    fuzz::require(std::ranges::all_of((*record)->sequence, is_residue));
    fuzz::require((*record)->header.find('\n') == std::string_view::npos);
    line = (*record)->line;
  }
  return 0;
}
