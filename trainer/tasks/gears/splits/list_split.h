// DataSplitter.get_split_list() of GEARS: the splits by drawn genes or conditions.
#pragma once

#include "trainer/tasks/gears/splits/numpy_random.h"
#include "trainer/tasks/gears/splits/splits.h"

namespace oarlock {

struct ListSplit {
  NameList train;
  NameList test;
};

// `kind`: kSingle, kComboSeen0 to 2, or kNoTest. NameList that are given are not drawn; `test_pert_genes` are drawn
// whatever the kind, as the original does, since each draw decides about the next.
ListSplit list_split(SplitKind kind, const NameList& conditions, double test_size, const NameList& test_pert_genes,
                     const NameList& test_perts, NumpyRandom& random);

}  // namespace oarlock
