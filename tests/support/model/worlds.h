// The distinct states of a simulated cluster, each once and in a form that does not depend on how it was reached:
// versions follow from content, times are ages, and ages end where nothing depends on them any more.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/sim_cluster.h"

namespace oarlock::test {

// Indices of what the store holds, and what happened in the current attempt so far.
struct World {
  uint32_t job = 0;
  uint32_t objects = 0;
  uint8_t done = 0;            // node ranks whose pod ended with exit code 0, as bits
  bool has_failed = false;     // a pod failed, was taken away or was lost
  bool has_no_remedy = false;  // with an exit code that no restart cures
  uint8_t still = 0;           // ticks since rank 0, which tells its steps, did one while the job ran

  bool operator==(const World&) const = default;
};

// What the operator knows of rank 0.
enum class Hearing : uint8_t {
  kNow,      // what it says now
  kOnce,     // what it said when the pods were seen
  kNothing,  // an operator that has just started has not asked yet
};

class Worlds {
 public:
  static constexpr std::chrono::seconds kTick{11};    // more than any grace of the operator
  static constexpr std::chrono::seconds kOldest{33};  // ages are not told apart beyond
  static constexpr uint8_t kOldestTicks = 3;

  explicit Worlds(const SimCluster& first);

  size_t size() const { return worlds_.size(); }
  const World& at(uint32_t world) const { return worlds_[world]; }
  const control::Job& job(uint32_t job) const { return jobs_[job]; }
  const Objects& objects(uint32_t objects) const { return objects_[objects]; }

  SimCluster cluster(uint32_t world) const;
  // What the cluster is after something happened to `from`.
  uint32_t after(uint32_t from, const SimCluster& cluster);
  // What the operator's watches show.
  // `pods` and `services` are indices of objects: the second is what the watches of Services and NetworkPolicies show.
  control::Observed observe(uint32_t job, uint32_t pods, uint32_t services, Hearing hearing, bool untouched) const;
  // Of the Service and the NetworkPolicy, all that a plan depends on: less than 8.
  unsigned service_state(uint32_t objects) const;
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
  std::unordered_map<std::string, uint32_t> job_ids_;
  std::unordered_map<std::string, uint32_t> object_ids_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> world_ids_;
};

}  // namespace oarlock::test
