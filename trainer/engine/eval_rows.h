// The values of each sample that an evaluation gives, from all ranks to rank 0 and into a file.
#pragma once

#include <filesystem>

#include "trainer/distributed/process_group.h"
#include "trainer/engine/task.h"

namespace oarlock {

// Names and shapes of the columns, the same on all ranks: name -> sizes behind dimension 0.
using RowLayout = std::map<std::string, std::vector<int64_t>>;

// The rows of one rank, batch after batch.
class RowCollector {
 public:
  // Throws std::runtime_error, naming the column, where the rows do not fit the ids or those of the first batch.
  void add(const std::vector<int64_t>& ids, const std::map<std::string, at::Tensor>& rows);

  const RowLayout& layout() const { return layout_; }  // of the first batch
  EvalRows rows() const;                               // in the order in which they came

 private:
  bool empty_ = true;
  RowLayout layout_;
  std::vector<int64_t> ids_;
  std::map<std::string, std::vector<at::Tensor>> parts_;
};

// By ascending id; of those with the same id the first.
EvalRows sorted_unique(const EvalRows& rows);

// Called by all ranks: the rows of all of them, sorted and unique, on rank 0; nothing on the others. Ranks may have
// different numbers of rows, and none. Nothing is sent where the layout has no columns.
EvalRows gather_rows(const EvalRows& mine, const RowLayout& layout, const RankGroup& group);

// CSV: "id", then the columns by name; one with more than one number per sample as name_0, name_1 ... Numbers are
// written so that they read back as the same bits. kIoErr and the like.
Result<void> write_rows_csv(const std::filesystem::path& path, const EvalRows& rows);

// Called by all ranks: rank 0 writes its rows where there are any and `path` is not empty; a failure is everybody's.
Result<void> write_eval_rows(const std::filesystem::path& path, const EvalRows& rows, const RankGroup& group);

}  // namespace oarlock
