// Ends a run that gets no better: decided once, on rank 0, and obeyed by all.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/stateful.h"
#include "trainer/config/early_stopping.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/task.h"

namespace oarlock {

// A metric has improved where it is better than its best by more than min_delta. The model has improved where all (any)
// of the metrics have; only then the bests of those that have are moved. An improvement gives the patience back;
// without one it falls by one, once every metric's grace period of evaluations was over before. At 0 the run stops.
// These are the rules of QuantumGrav's DefaultEarlyStopping; with one metric and no grace, those of Ignite's
// EarlyStopping.
class EarlyStopping final : public Stateful {
 public:
  // The monitor is what a metric without a name means. Without a patience nothing is watched.
  EarlyStopping(EarlyStoppingConfig config, const Monitor& monitor);

  // After an evaluation: takes the metrics and says whether to stop. kConfig when a metric that is watched is not among
  // them. NaN is no improvement. Never stops without a patience.
  Result<bool> observe(const Metrics& metrics);

  // The same by all ranks of a group: rank 0 observes, the others take over its state and its decision.
  Result<bool> observe(const Metrics& metrics, const RankGroup& group);

  bool stopped() const { return stopped_; }
  // For people: "no improvement of accuracy (best 0.91) for 5 evaluations".
  std::string reason() const;

  struct Watched {
    double best = 0;            // infinite: none yet
    int64_t grace_left = 0;     // evaluations
    bool has_improved = false;  // at the last evaluation
  };
  const std::vector<Watched>& watched() const { return watched_; }
  bool has_improved() const { return has_improved_; }
  int64_t patience_left() const { return patience_left_; }
  // All bests and grace periods (or one metric's) as at the beginning; the patience stays.
  void reset();
  void reset(size_t metric);

  std::string_view section() const override { return "early-stopping"; }
  TensorMap tensors() const override { return {}; }
  // Holds how much patience was lost, not how much is left: a run that stopped goes on when its patience is raised.
  nlohmann::json values() const override;
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  EarlyStoppingConfig config_;
  std::vector<Watched> watched_;
  int64_t patience_left_ = 0;
  bool has_improved_ = false;
  bool stopped_ = false;
};

}  // namespace oarlock
