#include "trainer/tasks/gears/splits/list_split.h"

#include <algorithm>
#include <stdexcept>

namespace oarlock {
namespace {

int64_t genes_in(const std::string& condition, const NameList& genes) {
  const NameList own = genes_of(condition);
  return std::count_if(own.begin(), own.end(), [&](const std::string& gene) { return contains(genes, gene); });
}

int64_t share_of(const NameList& names, double share) {
  return static_cast<int64_t>(static_cast<double>(names.size()) * share);
}

// Tested: what contains a drawn gene. Of these combinations the ones with more than `most_seen` other genes are held
// out of both sets, so that the test has none of them and the training does not see the drawn gene.
ListSplit split_by_genes(const NameList& conditions, const NameList& test_genes, int64_t most_seen) {
  const auto single = [&](const std::string& c) { return is_single(c) && genes_in(c, test_genes) > 0; };
  const auto combination = [&](const std::string& c) { return is_combination(c) && genes_in(c, test_genes) > 0; };
  const auto held_out = [&](const std::string& c) {
    return combination(c) && static_cast<int64_t>(genes_of(c).size()) - genes_in(c, test_genes) > most_seen;
  };
  const auto tested = [&](const std::string& c) { return single(c) || (combination(c) && !held_out(c)); };
  return {.train = where(conditions, [&](const std::string& c) { return !tested(c) && !held_out(c); }),
          .test = where(conditions, tested)};
}

ListSplit split_by_conditions(const NameList& conditions, const NameList& tested) {
  return {.train = where(conditions, [&](const std::string& c) { return !contains(tested, c); }), .test = tested};
}

}  // namespace

ListSplit list_split(SplitKind kind, const NameList& conditions, double test_size, const NameList& test_pert_genes,
                     const NameList& test_perts, NumpyRandom& random) {
  const NameList singles = where(conditions, is_single);
  const NameList combinations = where(conditions, is_combination);
  const NameList genes = test_pert_genes.empty()
                             ? random.choice_with_replacement(genes_of_all(conditions), share_of(singles, test_size))
                             : test_pert_genes;
  switch (kind) {
    case SplitKind::kSingle:
      return split_by_genes(conditions, genes, -1);  // no combination is tested
    case SplitKind::kComboSeen0:
      return split_by_genes(conditions, genes, 0);
    case SplitKind::kComboSeen1:
      return split_by_genes(conditions, genes, 1);
    case SplitKind::kComboSeen2:
      return split_by_conditions(conditions, test_perts.empty() ? random.choice_with_replacement(
                                                                      combinations, share_of(combinations, test_size))
                                                                : test_perts);
    case SplitKind::kNoTest:
      return split_by_conditions(
          conditions, test_perts.empty() ? random.choice_with_replacement(conditions, share_of(conditions, test_size))
                                         : test_perts);
    default:
      throw std::logic_error("this split is not drawn from a list");
  }
}

}  // namespace oarlock
