// Exact distributed evaluation: every sample is evaluated once, and the result is bitwise equal for every world size.
// The per-sample results are gathered from all ranks on rank 0, and written to a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "ddp/process_group.h"
#include "trainer/data/data_loader.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"

namespace oarlock {

// ---- Rows ------------------------------------------------------------------------------------------------------

// Names and shapes of the columns, the same on all ranks: name -> sizes after dimension 0.
using RowLayout = std::map<std::string, std::vector<int64_t>>;

// Collects the rows of one rank, batch by batch.
class RowCollector {
 public:
  // Throws std::runtime_error with the name of the column if the rows do not match the ids or the first batch.
  void add(const std::vector<int64_t>& ids, const std::map<std::string, at::Tensor>& rows);

  const RowLayout& layout() const { return layout_; }  // of the first batch
  EvalRows rows() const;                               // in the order of add()

 private:
  bool empty_ = true;
  RowLayout layout_;
  std::vector<int64_t> ids_;
  std::map<std::string, std::vector<at::Tensor>> parts_;
};

// Returns the rows in ascending order of ids, and the first row of each id.
EvalRows sorted_unique(const EvalRows& rows);

// Called by all ranks together. Returns the rows of all ranks, sorted and unique, on rank 0, and no rows on the others.
// Ranks may have different numbers of rows, including 0. Nothing is sent if the layout has no columns.
EvalRows gather_rows(const EvalRows& mine, const RowLayout& layout, const ProcessGroup& group);

// Returns an error on rank 0 if another process has replaced this one, which must not write files then. May be empty.
using WriterCheck = std::function<Result<void>()>;

// Called by all ranks together. Rank 0 writes its rows, if any, unless `path` is empty or `may_write` fails. A failure
// is returned on all ranks. A signal interrupts it as it does run_on_all_ranks(), because a file server may not
// respond.
Result<void> write_eval_rows(const std::filesystem::path& path, EvalRows rows, const ProcessGroup& group,
                             StopAgreement& stop, const WriterCheck& may_write = {});

// ---- Evaluation ------------------------------------------------------------------------------------------------

struct EvaluateOptions {
  DataLoaderOptions loader;  // batch_size is replaced by the pass's
  PrefetchOptions feed;
  StopAgreement* stop = nullptr;  // checked between batches; null: the pass cannot be interrupted
  WriterCheck may_write{};        // called before pass.finish, which may write files; its failure ends the evaluation
};

struct Evaluation {
  Metrics metrics;
  EvalRows rows;             // on rank 0; empty if the task returns none
  bool interrupted = false;  // the ranks have agreed to stop: there are no results, and pass.finish was not called
};

inline constexpr char kEvaluationName[] = "evaluation";

// The evaluation of a task as a pass, whose name is kEvaluationName. The task must outlive it.
EvalPass evaluation_of(Task& task);

// Called by all ranks together. The data are split into the same batches for every world size; batch b is evaluated by
// rank b mod world size; the sums of the batches are added in the order of the batches, in double precision, and rows
// are sorted by id. Rank 0 therefore computes the metrics from the same numbers whatever the world size.
//
// The module is in training mode afterwards. `steps` is passed to pass.finish, whose failure is returned on all ranks.
// Throws the exceptions of the task and the group.
Result<Evaluation> evaluate(const EvalPass& pass, torch::nn::Module& module, const ProcessGroup& group,
                            const EvaluateOptions& options, int64_t steps);

// Fails with kConfig if the step of a pass returns a mean over its batch in place of a sum: with some samples, it
// returns the mean of what it returns with either half of them. A step whose results are random is not checked. The
// module is in training mode afterwards. Throws the exceptions of the task.
Result<void> reject_means(const EvalPass& pass, torch::nn::Module& module, const at::Device& device);

// The indices of the samples that this rank evaluates, in order.
std::vector<int64_t> evaluation_indices(int64_t size, int64_t batch_size, int rank, int world_size);

}  // namespace oarlock
