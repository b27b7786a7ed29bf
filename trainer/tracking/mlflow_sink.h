// Reports a run to an MLflow tracking server through its REST API (version 2.0).
#pragma once

#include <memory>

#include "common/error.h"
#include "trainer/config/tracking.h"
#include "trainer/tracking/sink.h"
#include "trainer/tracking/variables.h"

namespace oarlock {

// The job is one run, which has the metrics, so that its curves are continuous over restarts; each attempt is a nested
// run with the parameters, status and reason of the attempt. Texts and images are artifacts of the job's run, through
// the server's proxy; MLflow has no histograms, so these are not reported.
//
// A metric, parameter, tag or artifact that MLflow rejects is dropped alone, with a warning. Everything else that fails
// is repeated: also while the run or its experiment is deleted, because they can be restored. If the run does not exist
// any more, because the store was reset, a new one is created; see MlflowErrorKind.
//
// A request whose response was lost may have succeeded. Runs have a tag by which they are found again, and before
// points are repeated, the newest point of each metric is read from the server. Opens no connection. Fails with kConfig
// if there is no address, or if the address or the TLS material is invalid.
Result<std::unique_ptr<Sink>> make_mlflow_sink(const MlflowConfig& config, const TrackingVariables& variables,
                                               const SinkContext& context);

}  // namespace oarlock
