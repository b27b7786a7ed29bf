// A FASTA file, plain or gzip: every record is on a later line than the one before and holds only letters, '*' and '-'.
#include <algorithm>

#include "tests/fuzz/input.h"
#include "trainer/data/fasta.h"

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
    fuzz::require((*record)->line > line && (*record)->sequence.size() <= FastaReader::kLongest);
    fuzz::require(std::ranges::all_of((*record)->sequence, is_residue));
    fuzz::require((*record)->header.find('\n') == std::string_view::npos);
    line = (*record)->line;
  }
  return 0;
}
