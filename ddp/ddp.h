// Distributed data parallel training for programs with LibTorch: the public headers of oarlock::ddp
// (docs/guides/ddp.md). The headers for JSON (agreement_json.h, reduction_state.h) are not among them.
#pragma once

#include "ddp/agreement.h"                  // IWYU pragma: export
#include "ddp/batch_norm.h"                 // IWYU pragma: export
#include "ddp/checkpoint.h"                 // IWYU pragma: export
#include "ddp/clip_grad.h"                  // IWYU pragma: export
#include "ddp/distributed_data_parallel.h"  // IWYU pragma: export
#include "ddp/distributed_sampler.h"        // IWYU pragma: export
#include "ddp/grad_scaler.h"                // IWYU pragma: export
#include "ddp/init_process_group.h"         // IWYU pragma: export
#include "ddp/library_errors.h"             // IWYU pragma: export
#include "ddp/options.h"                    // IWYU pragma: export
#include "ddp/process_group.h"              // IWYU pragma: export
#include "ddp/rank_environment.h"           // IWYU pragma: export
#include "ddp/recoverable_loop.h"           // IWYU pragma: export
#include "ddp/safetensors.h"                // IWYU pragma: export
#include "ddp/script_model.h"               // IWYU pragma: export
#include "ddp/sync_batchnorm.h"             // IWYU pragma: export
