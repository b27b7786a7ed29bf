// Which structures are for training, validation and test.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"

namespace oarlock {

struct SplitConfig {
  double train_ratio = 0.8;
  double val_ratio = 0.1;
  double test_ratio = 0.1;
  int64_t seed = 123;
  bool keep_order = false;  // the first are for training, the last for test
};

struct CrystalSplit {
  std::vector<int64_t> train;
  std::vector<int64_t> val;
  std::vector<int64_t> test;
};

// As ALIGNN, Matformer and ComFormer draw it: 0 to size - 1 shuffled by Python's random under the seed; the first
// int(train_ratio * size) train, the last int(test_ratio * size) test, the int(val_ratio * size) before these validate.
// What rounding leaves over is in none of them. kDataErr where a side that is asked for would be empty.
Result<CrystalSplit> split_crystals(int64_t size, const SplitConfig& config);

}  // namespace oarlock
