// The matrix X of an AnnData file, cells by genes: csr or dense, numbers of any type. It is read in blocks of rows, so
// that a matrix of any size takes little memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/data/hdf5/group.h"

namespace oarlock {

// Some rows, without their zeros.
struct SparseRows {
  int64_t first = 0;           // of the matrix
  std::vector<int64_t> begin;  // row first + i has the elements from begin[i] to before begin[i + 1]
  std::vector<int32_t> columns;
  std::vector<float> values;

  int64_t rows() const { return static_cast<int64_t>(begin.size()) - 1; }
};

class ExpressionMatrix {
 public:
  // kDataErr: neither csr nor dense, or its parts do not fit each other.
  static Result<ExpressionMatrix> open(const Hdf5Group& root);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // All rows in order, in blocks of about a million elements; a failure of `take` ends it. kDataErr, naming row and
  // dataset: what cannot be read, columns beyond the last, and what is not finite.
  Result<void> for_each_block(const std::function<Result<void>(const SparseRows& block)>& take) const;

 private:
  ExpressionMatrix(Hdf5Dataset values, int64_t rows, int64_t columns)
      : values_(std::move(values)), rows_(rows), columns_(columns) {}

  static Result<ExpressionMatrix> open_dense(Hdf5Dataset values);
  static Result<ExpressionMatrix> open_sparse(const Hdf5Group& group);
  int64_t block_end(int64_t first) const;
  Result<SparseRows> read_block(int64_t first, int64_t end) const;
  Result<SparseRows> read_dense(int64_t first, int64_t end) const;
  Result<SparseRows> read_sparse(int64_t first, int64_t end) const;
  Result<void> check(const SparseRows& block) const;

  Hdf5Dataset values_;
  int64_t rows_;
  int64_t columns_;
  std::vector<Hdf5Dataset> indices_;  // one; none of a dense matrix
  std::vector<int64_t> begin_;        // csr's indptr
};

}  // namespace oarlock
