// The distinct states of a simulated cluster, each in a canonical form that does not depend on the path to it: versions
// are derived from the content, times are stored as ages, and ages are limited to the range in which they matter.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/sim_cluster.h"

namespace oarlock::test {

// Indices of the stored objects, and the history of the current attempt.
struct World {
  uint32_t job = 0;
  uint32_t objects = 0;
  uint8_t done = 0;                // node ranks whose trainer completed its part, as bits
  bool has_failed = false;         // a pod failed, was removed or was lost
  bool has_no_remedy = false;      // with a permanent exit code
  uint8_t ticks_without_step = 0;  // ticks of the running job since the last step that rank 0 reported

  bool operator==(const World&) const = default;
};

// Which status of rank 0 the operator has received.
enum class PollView : uint8_t {
  kCurrent,  // the current status
  kStale,    // the status at the time of the observed pods
  kNone,     // none: a restarted operator has not polled yet
};

class Worlds {
 public:
  static constexpr std::chrono::seconds kTick{11};    // longer than any grace period of the operator
  static constexpr std::chrono::seconds kOldest{33};  // longer ages are not distinguished
  static constexpr uint8_t kOldestTicks = 3;
  static constexpr unsigned kServiceStates = 2048;

  explicit Worlds(const SimCluster& first);

  size_t size() const { return worlds_.size(); }
  const World& at(uint32_t world) const { return worlds_[world]; }
  const control::Job& job(uint32_t job) const { return jobs_[job]; }
  const Objects& objects(uint32_t objects) const { return objects_[objects]; }

  SimCluster cluster(uint32_t world) const;
  // Returns the index of the state of `cluster`, which resulted from a change of `from`.
  uint32_t after(uint32_t from, const SimCluster& cluster);
  // Returns what the operator observes. `pods` and `services` are indices of objects; `services` selects the state that
  // the watches of Services, NetworkPolicies, Workloads, PodGroups and TrainingProfiles show.
  control::Observed observe(uint32_t job, uint32_t pods, uint32_t services, PollView poll, bool untouched) const;
  // Returns the state of these objects, on which a plan depends: a number below kServiceStates.
  unsigned service_state(uint32_t objects) const { return service_states_[objects]; }
  bool is_untouched(uint32_t world) const {
    return test::is_untouched(jobs_[worlds_[world].job], objects_[worlds_[world].objects]);
  }

 private:
  uint32_t intern_job(control::Job job, std::chrono::seconds older);
  uint32_t intern_objects(Objects objects, const control::Job& job, std::chrono::seconds older);
  uint32_t intern(const World& world);

  std::vector<World> worlds_;
  std::vector<control::Job> jobs_;
  std::vector<Objects> objects_;
  std::vector<unsigned> service_states_;  // of objects_
  std::unordered_map<std::string, uint32_t> job_ids_;
  std::unordered_map<std::string, uint32_t> object_ids_;
  std::unordered_map<std::string, unsigned> service_state_ids_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> world_ids_;
};

}  // namespace oarlock::test
