#include "trainer/engine/eval_rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "common/files.h"

namespace oarlock {
namespace {

int64_t width_of(at::IntArrayRef sizes) { return c10::multiply_integers(sizes); }

std::vector<int64_t> with_rows(int64_t rows, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out = {rows};
  out.insert(out.end(), sizes.begin(), sizes.end());
  return out;
}

int64_t numbers_per_row(const RowLayout& layout) {
  int64_t out = 1;  // the id
  for (const auto& [name, sizes] : layout) out += width_of(sizes);
  return out;
}

// One row of 64-bit words per sample: the id, then the bits of each column's doubles.
at::Tensor packed(const EvalRows& rows, const RowLayout& layout, int64_t capacity) {
  const int64_t words = numbers_per_row(layout);
  at::Tensor out = at::zeros({capacity, words}, at::TensorOptions().dtype(at::kLong));
  auto* to = out.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < rows.ids.size(); ++i) to[static_cast<int64_t>(i) * words] = rows.ids[i];
  int64_t column = 1;
  for (const auto& [name, sizes] : layout) {
    const int64_t width = width_of(sizes);
    if (!rows.ids.empty()) {
      const auto* from = rows.columns.at(name).const_data_ptr<double>();
      for (int64_t i = 0; i < static_cast<int64_t>(rows.ids.size()); ++i)
        for (int64_t j = 0; j < width; ++j) to[i * words + column + j] = std::bit_cast<int64_t>(from[i * width + j]);
    }
    column += width;
  }
  return out;
}

EvalRows unpacked(const at::Tensor& words, const RowLayout& layout) {
  const int64_t count = words.size(0);
  const int64_t stride = words.size(1);
  const auto* from = words.const_data_ptr<int64_t>();
  EvalRows out;
  for (int64_t i = 0; i < count; ++i) out.ids.push_back(from[i * stride]);
  int64_t column = 1;
  for (const auto& [name, sizes] : layout) {
    const int64_t width = width_of(sizes);
    at::Tensor values = at::empty(with_rows(count, sizes), at::TensorOptions().dtype(at::kDouble));
    auto* to = values.mutable_data_ptr<double>();
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < width; ++j) to[i * width + j] = std::bit_cast<double>(from[i * stride + column + j]);
    out.columns.emplace(name, std::move(values));
    column += width;
  }
  return out;
}

}  // namespace

void RowCollector::add(const std::vector<int64_t>& ids, const std::map<std::string, at::Tensor>& rows) {
  if (std::exchange(empty_, false)) {
    for (const auto& [name, values] : rows) {
      if (values.dim() == 0) throw std::runtime_error(fmt::format("eval_step: the rows '{}' have no dimension", name));
      layout_.emplace(name, values.sizes().slice(1).vec());
    }
  }
  if (rows.size() != layout_.size())
    throw std::runtime_error("eval_step returned different rows for different batches");
  for (const auto& [name, sizes] : layout_) {
    const auto found = rows.find(name);
    const auto expected = with_rows(static_cast<int64_t>(ids.size()), sizes);
    if (found == rows.end() || found->second.sizes() != at::IntArrayRef(expected)) {
      throw std::runtime_error(
          fmt::format("eval_step: every batch must return rows '{}', one per sample, here {}, of the same shape", name,
                      ids.size()));
    }
    parts_[name].push_back(found->second.detach().to(at::kCPU, at::kDouble));
  }
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

EvalRows RowCollector::rows() const {
  EvalRows out{.ids = ids_, .columns = {}};
  for (const auto& [name, parts] : parts_) out.columns.emplace(name, at::cat(parts));
  return out;
}

EvalRows sorted_unique(const EvalRows& rows) {
  std::vector<int64_t> order(rows.ids.size());
  std::iota(order.begin(), order.end(), 0);
  const auto id = [&](int64_t row) { return rows.ids[static_cast<size_t>(row)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return id(a) < id(b); });
  order.erase(std::unique(order.begin(), order.end(), [&](int64_t a, int64_t b) { return id(a) == id(b); }),
              order.end());
  const at::Tensor index = at::empty({static_cast<int64_t>(order.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(order.begin(), order.end(), index.mutable_data_ptr<int64_t>());
  EvalRows out;
  for (const int64_t row : order) out.ids.push_back(id(row));
  for (const auto& [name, values] : rows.columns) out.columns.emplace(name, values.index_select(0, index));
  return out;
}

EvalRows gather_rows(const EvalRows& mine, const RowLayout& layout, const ProcessGroup& group) {
  if (layout.empty()) return {};
  if (group.world_size() == 1) return sorted_unique(mine);
  const std::vector<int64_t> counts = group.all_gather(static_cast<int64_t>(mine.ids.size()));
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return {};
  // gather() requires the same size on every rank.
  std::vector<at::Tensor> input = {packed(mine, layout, most).to(group.device())};
  std::vector<std::vector<at::Tensor>> output;
  if (group.rank() == 0) {
    output.emplace_back();
    for (size_t rank = 0; rank < counts.size(); ++rank) output[0].push_back(at::empty_like(input[0]));
  }
  c10d::GatherOptions options;
  options.rootRank = 0;
  group.c10d()->gather(output, input, options)->wait();
  if (group.rank() != 0) return {};
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    parts.push_back(output[0][rank].to(at::kCPU).narrow(0, 0, counts[rank]));
  return sorted_unique(unpacked(at::cat(parts), layout));
}

Result<void> write_rows_csv(const std::filesystem::path& path, const EvalRows& rows) {
  std::string text = "id";
  for (const auto& [name, values] : rows.columns) {
    const int64_t width = width_of(values.sizes().slice(1));
    if (values.dim() == 1) text += "," + name;
    for (int64_t j = 0; values.dim() > 1 && j < width; ++j) text += fmt::format(",{}_{}", name, j);
  }
  text += "\n";
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    text += std::to_string(rows.ids[i]);
    for (const auto& [name, values] : rows.columns) {
      const int64_t width = width_of(values.sizes().slice(1));
      const auto* row = values.const_data_ptr<double>() + static_cast<int64_t>(i) * width;
      for (int64_t j = 0; j < width; ++j) text += fmt::format(",{}", row[j]);
    }
    text += "\n";
  }
  return write_file_atomically(path, text);
}

Result<void> write_eval_rows(const std::filesystem::path& path, const EvalRows& rows, const ProcessGroup& group) {
  if (path.empty()) return {};
  Result<void> written;
  if (group.rank() == 0 && !rows.columns.empty()) written = write_rows_csv(path, rows);
  return group.agree(written);
}

}  // namespace oarlock
