// A learning rate that drops when an evaluation's metric no longer gets better: ReduceLROnPlateau of
// torch/optim/lr_scheduler.py.
#pragma once

#include <optional>

#include "trainer/checkpoint/stateful.h"
#include "trainer/config/schedule.h"

namespace oarlock {

// Every rank observes the same metric, bit for bit, and so decides alike.
class Plateau final : public Stateful {
 public:
  explicit Plateau(const PlateauConfig& config) : config_(config) {}

  // After an evaluation. NaN is no improvement.
  void observe(double metric);

  // What is left of a learning rate.
  double rate(double lr) const;

  std::string_view section() const override { return "plateau"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override;
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  bool is_better(double metric) const;

  PlateauConfig config_;
  std::optional<double> best_;
  int64_t bad_evaluations_ = 0;
  int64_t cooldown_left_ = 0;
  int64_t reductions_ = 0;
};

}  // namespace oarlock
