// The per-sample results of an evaluation: gathered from all ranks on rank 0, and written to a file.
#pragma once

#include <filesystem>

#include "trainer/distributed/process_group.h"
#include "trainer/engine/task.h"

namespace oarlock {

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
// Ranks may have different numbers of rows, also none. Nothing is sent if the layout has no columns.
EvalRows gather_rows(const EvalRows& mine, const RowLayout& layout, const ProcessGroup& group);

// Writes CSV: "id", then the columns by name; a column with several numbers per sample as name_0, name_1, ... Numbers
// are written so that they read back bitwise equal. Fails with kIoErr and similar codes.
Result<void> write_rows_csv(const std::filesystem::path& path, const EvalRows& rows);

// Called by all ranks together. Rank 0 writes its rows, if any, unless `path` is empty. A failure is returned on all
// ranks.
Result<void> write_eval_rows(const std::filesystem::path& path, const EvalRows& rows, const ProcessGroup& group);

}  // namespace oarlock
