// Options of the model checker, for its tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/builders.h"
#include "tests/support/model/checker.h"

namespace oarlock::test {

inline ModelOptions with(const control::Job& job, int faults, bool old_views = true) {
  ModelOptions options;
  options.job = job;
  options.faults = faults;
  options.old_views = old_views;
  return options;
}

// A job whose group has one or two nodes. The times are below a tick of the model.
inline JobBuilder elastic_of(JobBuilder of, int grow_after) {
  of.elastic(1, 10, grow_after);
  return of;
}

inline api::FailureRule ignores_exit_code(int64_t code) {
  return {api::FailureAction::kIgnore, api::ExitCodeMatch{api::ExitCodeOperator::kIn, {code}}, {}, {}};
}

inline ModelOptions with_steps(ModelOptions options) {
  options.moves.steps = true;
  return options;
}

inline ModelOptions with_disconnects(ModelOptions options) {
  options.moves.disconnects = true;
  return options;
}

inline ModelOptions with_sidecars(ModelOptions options) {
  options.moves.sidecars = true;
  return options;
}

inline ModelOptions from_running(ModelOptions options) {
  options.starts_running = true;
  return options;
}

inline ModelOptions bounded(ModelOptions options, size_t states) {
  options.max_states = states;
  return options;
}

inline ModelOptions with_exits(ModelOptions options, std::vector<int> exit_codes) {
  options.moves.exit_codes = std::move(exit_codes);
  return options;
}

inline ModelOptions with_foreign(ModelOptions options, const std::string& pod) {
  options.foreign_pods = {pod};
  return options;
}

inline ModelOptions with_gangs(ModelOptions options) {
  options.gangs = true;
  return options;
}

inline ModelOptions with_cluster_nodes(ModelOptions options, int count) {
  options.cluster_nodes = count;
  return options;
}

inline ModelOptions with_profile(ModelOptions options, int64_t generation) {
  options.profile = generation;
  return options;
}

inline ModelOptions with_policies(ModelOptions options) {
  options.metrics_peers = R"([{"namespaceSelector":{}}])";
  return options;
}

}  // namespace oarlock::test
