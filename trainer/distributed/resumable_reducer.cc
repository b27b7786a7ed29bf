#include "trainer/distributed/resumable_reducer.h"

namespace oarlock {

LearnedReduction ResumableReducer::learned() const {
  LearnedReduction out;
  for (const Bucket& bucket : buckets_) out.buckets.push_back(bucket.variable_indices);
  out.rebuilt = has_rebuilt_bucket_;
  if (!static_graph_ || num_bwd_calls_ == 0) return out;
  for (size_t i = 0; i < params_.size(); ++i) {
    out.uses.push_back(numGradHooksTriggeredMap_.at(i));
    out.used.push_back(local_used_map_[static_cast<int64_t>(i)].item<int64_t>());
  }
  return out;
}

void ResumableReducer::go_on(const LearnedReduction& before) {
  has_rebuilt_bucket_ = before.rebuilt;
  if (before.uses.empty()) return;
  for (size_t i = 0; i < params_.size(); ++i) {
    numGradHooksTriggeredMap_[i] = static_cast<int>(before.uses.at(i));
    local_used_map_[static_cast<int64_t>(i)] = before.used.at(i);
    if (before.uses[i] == 0) unused_parameters_.push_back(i);
  }
  local_used_map_reduced_ = true;
  num_bwd_calls_ = 1;  // the pass that learns is the first
}

}  // namespace oarlock
