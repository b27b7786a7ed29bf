// A directory with a FASTA file of random proteins.
#pragma once

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace oarlock::test {

// Shares of the 20 amino acids ACDEFGHIKLMNPQRSTVWY that are far from equal; they sum to 1.
inline const std::vector<double>& residue_shares() {
  static const std::vector<double> shares{0.15, 0.01, 0.05, 0.06, 0.04, 0.07, 0.02, 0.06, 0.05, 0.17,
                                          0.02, 0.02, 0.04, 0.03, 0.04, 0.05, 0.04, 0.05, 0.01, 0.02};
  return shares;
}

class ProteinDirectory {
 public:
  const std::filesystem::path& path() const { return directory_.path(); }
  std::string file(const std::string& name) const { return (path() / name).string(); }

  // Independent residues with residue_shares(), of lengths between the two.
  void write(const std::string& name, int count, int shortest, int longest, unsigned seed) const {
    std::mt19937 random(seed);
    std::discrete_distribution<size_t> residue(residue_shares().begin(), residue_shares().end());
    std::uniform_int_distribution<int> length(shortest, longest);
    std::ofstream out(file(name));
    for (int i = 0; i < count; ++i) {
      out << ">protein-" << i << "\n";
      for (int left = length(random); left > 0; --left) out << "ACDEFGHIKLMNPQRSTVWY"[residue(random)];
      out << "\n";
    }
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace oarlock::test
