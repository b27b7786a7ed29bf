#include "trainer/process/job_environment.h"

#include <utility>

#include "common/contract.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr int kMaxMetricsPort = 65535;

}  // namespace

Result<JobEnvironment> read_job_environment(const EnvironmentLookup& lookup) {
  ASSIGN_OR_RETURN(RankEnvironment rank, read_rank_environment(lookup));
  VariableReader reader(lookup);
  JobEnvironment out;
  static_cast<RankEnvironment&>(out) = std::move(rank);
  out.job = reader.text(kEnvJob).value_or("");
  out.job_namespace = reader.text(kEnvNamespace).value_or("");
  out.config = reader.text(kEnvConfig);
  out.checkpoint_dir = reader.text(kEnvCheckpointDir);
  out.termination_log = reader.text(kEnvTerminationLog);
  out.metrics_port = reader.integer(kEnvMetricsPort, 0, kMaxMetricsPort);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return out;
}

}  // namespace oarlock
