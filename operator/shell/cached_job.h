// A job as the cache holds it, and the budget for the large parts of the specs of all cached jobs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "operator/core/model.h"

namespace oarlock::control {

// Thread-safe. Limits the bytes of the specs that are in memory at one time, whoever holds them: the cache, a relist
// before it replaces the cache, or a reconcile.
class SpecBudget {
 public:
  explicit SpecBudget(size_t limit) : used_(std::make_shared<std::atomic<size_t>>(0)), limit_(limit) {}

  // Returned to the budget when it is destroyed. May outlive the budget.
  class Share {
   public:
    Share(std::shared_ptr<std::atomic<size_t>> used, size_t bytes) : used_(std::move(used)), bytes_(bytes) {}
    Share(Share&& other) noexcept : used_(std::move(other.used_)), bytes_(other.bytes_) {}
    ~Share() {
      if (used_ != nullptr) *used_ -= bytes_;
    }
    Share& operator=(Share&& other) noexcept {
      std::swap(used_, other.used_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

   private:
    std::shared_ptr<std::atomic<size_t>> used_;
    size_t bytes_;
  };

  // Empty: the bytes do not fit now.
  std::optional<Share> try_take(size_t bytes);
  size_t used() const { return *used_; }

 private:
  const std::shared_ptr<std::atomic<size_t>> used_;
  const size_t limit_;
};

struct CachedJob {
  Job job;
  // accelerators_of() the template, which `job` may not hold. Empty for a job that has ended.
  std::map<std::string, int64_t> accelerators;
  std::optional<SpecBudget::Share> share;
};

// Leaves out the large parts of the spec (template, trainer and failure rules) where nothing reads them any more: of a
// job that has ended, that cannot be read, or that another controller manages. Where the budget does not permit them,
// they are left out, too, and job.report.is_trimmed is set: such a job must be read from the API server before anything
// is decided about it. Each copy of a job that is made of the result holds its own memory.
CachedJob make_cached_job(Job job, SpecBudget& budget);

// The bytes that template, trainer and failure rules take in memory.
size_t spec_bytes(const api::Spec& spec);

}  // namespace oarlock::control
