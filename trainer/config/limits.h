// Upper bounds of numbers in configurations. They are above the values of real runs, and small enough that nothing that
// is computed from them overflows, and that no run allocates memory or waits without bound before its first step.
#pragma once

namespace oarlock {

inline constexpr double kMaxSeconds = 1e6;   // 11 days; as milliseconds, it fits the int of poll(2)
inline constexpr double kMaxSteps = 1e12;    // also of intervals and of numbers of evaluations
inline constexpr double kMaxEpochs = 1e9;    // the number of steps is their product with those of an epoch
inline constexpr double kMaxSamples = 1e12;  // of a dataset, or the part of it that is used
inline constexpr double kMaxBatchSize = 2147483647;
inline constexpr double kMaxAccumulationSteps = 1e6;
inline constexpr double kMaxRanks = 1e6;
inline constexpr double kMaxThreads = 1024;   // of one pool of a rank
inline constexpr double kMaxPrefetch = 1024;  // batches per thread
inline constexpr double kMaxLayers = 1000;
inline constexpr double kMaxLayerWidth = 65536;

}  // namespace oarlock
