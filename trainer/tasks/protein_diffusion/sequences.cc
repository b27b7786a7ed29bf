#include "trainer/tasks/protein_diffusion/sequences.h"

#include <algorithm>

#include "trainer/tasks/protein_diffusion/residues.h"

namespace oarlock {

void Sequences::tokens(int64_t i, std::span<int64_t> out) const {
  const std::span<const uint8_t> stored = tokens_[i];
  const size_t count = std::min(stored.size(), out.size());
  std::copy_n(stored.begin(), count, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), kPadToken);
}

}  // namespace oarlock
