#include "trainer/tasks/gears/data/cell_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace oarlock {
namespace {

template <typename T>
void write(std::ofstream& out, const T* data, size_t count) {
  out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(count * sizeof(T)));
}

}  // namespace

double GroupSums::mean(int64_t group, int64_t gene) const {
  return sum[static_cast<size_t>(group * genes + gene)] / static_cast<double>(cells[static_cast<size_t>(group)]);
}

double GroupSums::variance(int64_t group, int64_t gene) const {
  const auto n = static_cast<double>(cells[static_cast<size_t>(group)]);
  if (n < 2) return 0;
  const double average = mean(group, gene);
  const double biased = squares[static_cast<size_t>(group * genes + gene)] / n - average * average;
  return std::max(biased, 0.0) * n / (n - 1);
}

CellWriter::CellWriter(const std::filesystem::path& folder, std::vector<int32_t> groups, int64_t group_count,
                       int64_t genes)
    : folder_(folder),
      groups_(std::move(groups)),
      sums_(group_count, genes),
      values_(folder / "values.f32", std::ios::binary),
      columns_(folder / "columns.i32", std::ios::binary),
      begin_(folder / "begin.i64", std::ios::binary) {
  write(begin_, &written_, 1);
}

void CellWriter::add(const SparseRows& block) {
  for (int64_t row = 0; row < block.rows(); ++row) {
    const int32_t group = groups_[static_cast<size_t>(block.first + row)];
    const auto from = static_cast<size_t>(block.begin[static_cast<size_t>(row)]);
    const auto to = static_cast<size_t>(block.begin[static_cast<size_t>(row) + 1]);
    ++sums_.cells[static_cast<size_t>(group)];
    for (size_t i = from; i < to; ++i) {
      const auto at = static_cast<size_t>(group * sums_.genes + block.columns[i]);
      const double value = block.values[i];
      sums_.sum[at] += value;
      sums_.squares[at] += value * value;
    }
    write(values_, block.values.data() + from, to - from);
    write(columns_, block.columns.data() + from, to - from);
    written_ += static_cast<int64_t>(to - from);
    write(begin_, &written_, 1);
  }
}

Result<void> CellWriter::finish() {
  for (std::ofstream* file : {&values_, &columns_, &begin_}) {
    file->close();
    if (file->fail()) return fail_errno(errno, fmt::format("{}: cannot be written", folder_.string()));
  }
  return {};
}

}  // namespace oarlock
