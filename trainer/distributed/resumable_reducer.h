// c10d::Reducer that can go on as another process's would have gone on.
#pragma once

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "trainer/distributed/reduction_state.h"

namespace oarlock {

class ResumableReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  LearnedReduction learned() const;

  // Before the first pass, and after set_static_graph(); `before.buckets` are those of the constructor.
  void go_on(const LearnedReduction& before);
};

}  // namespace oarlock
