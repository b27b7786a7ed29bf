#include "operator/shell/cached_job.h"

#include <utility>

#include "operator/shell/accelerators.h"

namespace oarlock::control {
namespace {

// An assignment would keep the memory.
void drop_spec(api::Spec& spec) {
  std::string().swap(spec.pod_template);
  std::string().swap(spec.trainer);
  std::vector<api::FailureRule>().swap(spec.failure_policy.rules);
}

}  // namespace

std::optional<SpecBudget::Share> SpecBudget::try_take(size_t bytes) {
  size_t used = *used_;
  do {
    if (bytes > limit_ || used > limit_ - bytes) return std::nullopt;
  } while (!used_->compare_exchange_weak(used, used + bytes));
  return Share(used_, bytes);
}

size_t spec_bytes(const api::Spec& spec) {
  size_t bytes = spec.pod_template.capacity() + spec.trainer.capacity();
  for (const api::FailureRule& rule : spec.failure_policy.rules) {
    bytes += sizeof rule;
    if (rule.on_exit_codes) bytes += rule.on_exit_codes->values.capacity() * sizeof(int64_t);
    for (const std::string& reason : rule.on_pod_reasons) bytes += sizeof reason + reason.capacity();
    for (const api::PodConditionMatch& match : rule.on_pod_conditions)
      bytes += sizeof match + match.type.capacity() + match.status.capacity();
  }
  return bytes;
}

CachedJob make_cached_job(Job job, SpecBudget& budget) {
  CachedJob out{.job = std::move(job), .accelerators = {}, .share = {}};
  api::Spec& spec = out.job.spec;
  const bool has_ended = is_terminal(out.job.status.phase);
  if (!has_ended) out.accelerators = accelerators_of(spec.pod_template);
  if (has_ended || !out.job.report.problem.empty() || spec.is_managed_elsewhere()) {
    drop_spec(spec);
  } else if (out.share = budget.try_take(spec_bytes(spec)); !out.share) {
    out.job.report.is_trimmed = true;
    out.job.report.trimmed_kib = static_cast<uint32_t>((spec_bytes(spec) + 1023) / 1024);
    drop_spec(spec);
  }
  return out;
}

}  // namespace oarlock::control
