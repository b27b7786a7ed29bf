// Protein sequences as tokens, memory-mapped: none of 60 million is in memory before it is asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "common/error.h"
#include "trainer/data/packed_bytes.h"

namespace oarlock {

class Sequences {
 public:
  // `limit`: the first so many only; 0: all.
  explicit Sequences(PackedBytes tokens, int64_t limit = 0)
      : tokens_(std::move(tokens)), size_(limit > 0 ? std::min(limit, tokens_.size()) : tokens_.size()) {}

  int64_t size() const { return size_; }
  // In tokens, as it is stored; at least 1.
  int64_t length(int64_t i) const { return tokens_.length(i); }
  // The first tokens of sequence i, as many as `out` holds; behind its end <pad>. Thread-safe. `i` must be below
  // size().
  void tokens(int64_t i, std::span<int64_t> out) const;

 private:
  PackedBytes tokens_;
  int64_t size_;
};

}  // namespace oarlock
