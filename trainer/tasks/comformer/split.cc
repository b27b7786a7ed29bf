#include "trainer/tasks/comformer/split.h"

#include <fmt/format.h>

#include <numeric>

#include "trainer/data/python_random.h"

namespace oarlock {

Result<CrystalSplit> split_crystals(int64_t size, const SplitConfig& config) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  if (!config.keep_order) PythonRandom(static_cast<uint64_t>(config.seed)).shuffle(order);
  const auto share = [&](double ratio) { return static_cast<int64_t>(ratio * static_cast<double>(size)); };
  const int64_t train = share(config.train_ratio);
  const int64_t val = share(config.val_ratio);
  const int64_t test = share(config.test_ratio);
  if (train == 0 || val == 0 || (test == 0 && config.test_ratio > 0)) {
    return fail(ExitCode::kDataErr, fmt::format("of {} structures {} would train, {} validate and {} test: more are "
                                                "needed, or other data.split ratios",
                                                size, train, val, test));
  }
  const auto end = order.end();
  return CrystalSplit{.train = {order.begin(), order.begin() + train},
                      .val = {end - (val + test), end - test},
                      .test = {end - test, end}};
}

}  // namespace oarlock
