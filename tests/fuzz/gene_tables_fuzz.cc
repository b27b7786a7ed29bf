// The tables of a GEARS data set: edges as CSV, and the terms of genes as JSON. The first byte selects the reader.
#include <limits>

#include "tests/fuzz/input.h"
#include "workloads/gears/gene_tables.h"

using namespace oarlock;

namespace {

void require_message(const Error& error) {
  fuzz::require(error.code == ExitCode::kDataErr);
  fuzz::require(error.message.size() < 1000 && error.message.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const fuzz::InputFile input(fuzz::text_of(data + 1, size - 1));
  if (data[0] == 'e') {
    const Result<std::vector<gears::NamedEdge>> edges = gears::read_edges(input.path());
    if (!edges) require_message(edges.error());
    for (const gears::NamedEdge& edge : edges.value_or(std::vector<gears::NamedEdge>()))
      fuzz::require(edge.importance >= 0 && edge.importance <= std::numeric_limits<float>::max());
  } else if (data[0] == 't') {
    const Result<gears::GeneTerms> terms = gears::read_gene2go(input.path());
    if (!terms) require_message(terms.error());
  } else {
    return -1;  // not kept as an input
  }
  return 0;
}
