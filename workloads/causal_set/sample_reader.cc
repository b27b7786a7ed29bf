#include "workloads/causal_set/sample_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "common/memory_limit.h"
#include "common/status_macros.h"

namespace oarlock::causal_set {

namespace {

constexpr char kLinkMatrix[] = "link_matrix";
constexpr char kAdjacencyMatrix[] = "adjacency_matrix";
constexpr char kSizes[] = "cset_size";
constexpr char kSampleCount[] = "num_samples";
constexpr int64_t kBlockBytes = 64 << 20;  // of the matrices of a block
constexpr uint64_t kRelationBytes = 64;    // in the sample, in the lists of CausalRelations, and in the archive

tl::unexpected<Error> data_error(std::string what) { return fail(ExitCode::kDataErr, std::move(what)); }

Error no_array(const ArrayStore& store, const std::string& name, const std::string& remedy) {
  return {ExitCode::kDataErr, fmt::format("{}: contains no array '{}'{}; it contains {}", store.path().string(), name,
                                          remedy, fmt::join(store.names(), ", "))};
}

}  // namespace

int64_t SampleReader::Column::length(size_t axis) const {
  const std::vector<int64_t>& shape = array->shape();
  return reversed ? shape[shape.size() - 1 - axis] : shape[axis];
}

Result<void> SampleReader::Column::read(int64_t first, int64_t count) {
  std::vector<int64_t> begin(array->shape().size(), 0);
  std::vector<int64_t> extent = array->shape();
  const size_t axis = reversed ? begin.size() - 1 : 0;
  begin[axis] = first;
  extent[axis] = count;
  return array->read(begin, extent).map([&](std::vector<double> read) { values = std::move(read); });
}

// Reversed, element (sample, i, j) is at [j, i, sample].
double SampleReader::Column::at(int64_t sample, int64_t block, int64_t i, int64_t j) const {
  const int64_t columns = array->shape().size() > 2 ? length(2) : 1;
  const int64_t rows = row_size / columns;
  const int64_t index = reversed ? (j * rows + i) * block + sample : sample * row_size + i * columns + j;
  return values[static_cast<size_t>(index)];
}

Result<SampleReader> SampleReader::open(const ArrayStore& store, const CausalSetDataConfig& config,
                                        std::span<const TargetSpec> targets) {
  SampleReader reader(config, store.path().string());
  return reader.open_columns(store, targets).map([&] { return std::move(reader); });
}

Result<SampleReader::Column> SampleReader::open_column(const ArrayStore& store, const std::string& name,
                                                       size_t min_axes, size_t max_axes) {
  if (!store.has(name)) return tl::make_unexpected(no_array(store, name, ""));
  ASSIGN_OR_RETURN(std::unique_ptr<StoredArray> array, store.open(name));
  const std::vector<int64_t>& shape = array->shape();
  Column column{std::move(array), reversed_ && shape.size() > 1, {}};
  if (shape.size() < min_axes || shape.size() > max_axes)
    return data_error(fmt::format("{}: shape [{}] has {} axes, expected {}", column.array->place(),
                                  fmt::join(shape, ", "), shape.size(), max_axes));
  if (samples_ > 0 && column.length(0) < samples_)
    return data_error(fmt::format("{}: shape [{}] does not have {} samples like the matrices", column.array->place(),
                                  fmt::join(shape, ", "), samples_));
  for (size_t axis = 1; axis < shape.size(); ++axis) column.row_size *= column.length(axis);
  return column;
}

Result<void> SampleReader::choose_axes(const ArrayStore& store, const std::string& matrix) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StoredArray> array, store.open(matrix));
  const std::vector<int64_t>& shape = array->shape();
  const bool first = shape.size() == 3 && shape[1] == shape[2];
  const bool last = shape.size() == 3 && shape[0] == shape[1];
  const std::string place = fmt::format("{}: shape [{}]", array->place(), fmt::join(shape, ", "));
  if (config_.axes == AxisOrder::kAuto && first && last)
    return data_error(place + " is ambiguous: set data.axes to the order of the axes");
  reversed_ = config_.axes == AxisOrder::kAuto ? last : config_.axes == AxisOrder::kReversed;
  if (reversed_ ? last : first) return {};
  return data_error(
      fmt::format("{} does not consist of square matrices with the samples {}", place,
                  config_.axes == AxisOrder::kAuto ? "first or last" : (reversed_ ? "last" : "first (data.axes)")));
}

// A store that is allocated for more samples than it contains has their number in num_samples.
Result<void> SampleReader::read_sample_count(const ArrayStore& store) {
  samples_ = matrix_.length(0);
  if (!store.has(kSampleCount)) return {};
  ASSIGN_OR_RETURN(const std::unique_ptr<StoredArray> count, store.open(kSampleCount));
  const std::vector<int64_t> shape = count->shape();
  const std::vector<int64_t> begin(shape.size(), 0);
  if (std::any_of(shape.begin(), shape.end(), [](int64_t length) { return length != 1; })) return {};
  ASSIGN_OR_RETURN(const std::vector<double> value, count->read(begin, shape));
  const bool is_count = value.front() >= 0 && value.front() == std::floor(value.front());  // neither is true of NaN
  if (!is_count || value.front() > static_cast<double>(samples_))
    return data_error(
        fmt::format("{}: {} samples, but there are {} matrices", count->place(), value.front(), samples_));
  samples_ = static_cast<int64_t>(value.front());
  return {};
}

Result<void> SampleReader::open_columns(const ArrayStore& store, std::span<const TargetSpec> targets) {
  reduce_ = config_.edges == EdgeKind::kLinks && !store.has(kLinkMatrix);
  const std::string matrix = config_.edges == EdgeKind::kRelations || reduce_ ? kAdjacencyMatrix : kLinkMatrix;
  if (!store.has(matrix))
    return tl::make_unexpected(no_array(store, matrix, reduce_ ? fmt::format(" (nor '{}')", kLinkMatrix) : ""));
  RETURN_IF_ERROR(choose_axes(store, matrix));
  const auto open_into = [&](const std::string& name, size_t min, size_t max, auto&& take) {
    return open_column(store, name, min, max).map([&](Column column) { take(std::move(column)); });
  };
  auto opened = open_into(matrix, 3, 3, [&](Column column) { matrix_ = std::move(column); });
  if (!opened) return opened;
  elements_ = matrix_.length(1);
  if (elements_ == 0) return data_error(matrix_.array->place() + ": matrices without elements");
  RETURN_IF_ERROR(read_sample_count(store));
  if (store.has(kSizes)) {
    opened = open_into(kSizes, 1, 1, [&](Column column) { sizes_ = std::move(column); });
    if (!opened) return opened;
  }
  for (const std::string& name : config_.node_features) {
    if (!store.has(name) && is_computed_feature(name)) {
      node_features_.emplace_back();
      continue;
    }
    opened = open_into(name, 2, 2, [&](Column column) { node_features_.push_back(std::move(column)); });
    if (!opened) return opened;
    if (const Column& column = *node_features_.back(); column.row_size < elements_)
      return data_error(
          fmt::format("{}: {} elements, but the matrices have {}", column.array->place(), column.row_size, elements_));
  }
  for (const std::string& name : config_.graph_features) {
    opened = open_into(name, 1, 2, [&](Column column) { graph_features_.push_back(std::move(column)); });
    if (!opened) return opened;
    widths_.graph_features += graph_features_.back().row_size;
  }
  for (const TargetSpec& target : targets) {
    opened = open_into(target.array, 1, 2, [&](Column column) { targets_.push_back(std::move(column)); });
    if (!opened) return opened;
    if (const Column& column = targets_.back(); column.row_size != target.width)
      return data_error(fmt::format("{}: {} number(s) per sample, but the task has {}", column.array->place(),
                                    column.row_size, target.width));
    widths_.targets += target.width;
    target_specs_.push_back(target);
  }
  // In floating point, because the product of the sizes in a file may overflow.
  const double sample_bytes = std::max(1.0, std::pow(static_cast<double>(elements_), 2) * sizeof(double));
  const int64_t chunk = matrix_.array->chunk_length(matrix_.reversed ? 2 : 0);
  block_ = std::max<int64_t>(static_cast<int64_t>(kBlockBytes / sample_bytes), 1);
  if (block_ > chunk) block_ -= block_ % chunk;
  return {};
}

Result<void> SampleReader::read_block(int64_t first) {
  const int64_t count = std::min(block_, samples_ - first);
  block_size_ = 0;
  std::vector<Column*> columns = {&matrix_};
  if (sizes_) columns.push_back(&*sizes_);
  for (auto& column : node_features_)
    if (column) columns.push_back(&*column);
  for (Column& column : graph_features_) columns.push_back(&column);
  for (Column& column : targets_) columns.push_back(&column);
  for (Column* column : columns) {
    RETURN_IF_ERROR(column->read(first, count));
  }
  block_first_ = first;
  block_size_ = count;
  return {};
}

Result<CausalSample> SampleReader::sample(int64_t index) {
  if (index < block_first_ || index >= block_first_ + block_size_) {
    RETURN_IF_ERROR(read_block(index));
  }
  return make(index - block_first_);
}

tl::unexpected<Error> SampleReader::sample_error(const Column& column, int64_t in_block,
                                                 const std::string& what) const {
  return data_error(fmt::format("{}: sample {}: {}", column.array->place(), block_first_ + in_block, what));
}

Result<int64_t> SampleReader::size_of(int64_t in_block) const {
  if (!sizes_) return elements_;
  const double size = sizes_->at(in_block, block_size_, 0);
  if (size < 1 || size > static_cast<double>(elements_) || size != std::floor(size))
    return sample_error(*sizes_, in_block, fmt::format("{} elements in a matrix of {}", size, elements_));
  return static_cast<int64_t>(size);
}

Result<std::vector<Relation>> SampleReader::relations_of(int64_t in_block, int64_t size) const {
  std::vector<Relation> relations;
  for (int64_t to = 0; to < elements_; ++to) {
    for (int64_t from = 0; from < elements_; ++from) {
      const double value = matrix_.at(in_block, block_size_, from, to);
      if (value == 0) continue;
      if (std::isnan(value)) return sample_error(matrix_, in_block, fmt::format("[{}, {}] is NaN", from, to));
      if (from >= size || to >= size)
        return sample_error(
            matrix_, in_block,
            fmt::format("[{}, {}] is {}, but there are {} elements ({})", from, to, value, size, kSizes));
      relations.push_back({from, to});
    }
  }
  return relations;
}

Result<CausalSample> SampleReader::make(int64_t in_block) {
  CausalSample sample;
  ASSIGN_OR_RETURN(const int64_t size, size_of(in_block));
  sample.size = size;
  ASSIGN_OR_RETURN(std::vector<Relation> edges, relations_of(in_block, size));
  RETURN_IF_ERROR(expect_memory(edges.size(), kRelationBytes, matrix_.array->place()));
  CausalRelations relations(size, edges);
  const std::optional<std::vector<int64_t>> order = relations.order();
  if (!order) return sample_error(matrix_, in_block, "the relations contain a cycle");
  sample.edges = reduce_ ? relations.links(*order) : std::move(edges);
  if (reduce_) relations = CausalRelations(size, sample.edges);
  RETURN_IF_ERROR(add_node_features(relations, *order, in_block, sample));
  for (const Column& column : graph_features_) {
    for (int64_t i = 0; i < column.row_size; ++i) {
      const double value = column.at(in_block, block_size_, i);
      if (!std::isfinite(value)) return sample_error(column, in_block, fmt::format("{} is not a finite number", value));
      sample.graph_features.push_back(static_cast<float>(value));
    }
  }
  return add_targets(in_block, sample).map([&] { return std::move(sample); });
}

Result<void> SampleReader::add_targets(int64_t in_block, CausalSample& sample) const {
  for (size_t t = 0; t < targets_.size(); ++t) {
    const Column& column = targets_[t];
    const std::vector<double>& classes = target_specs_[t].classes;
    for (int64_t i = 0; i < column.row_size; ++i) {
      double value = column.at(in_block, block_size_, i);
      if (!std::isfinite(value)) return sample_error(column, in_block, fmt::format("{} is not a finite number", value));
      if (!classes.empty()) {
        const auto found = std::find(classes.begin(), classes.end(), value);
        if (found == classes.end())
          return sample_error(column, in_block,
                              fmt::format("{} is none of the classes {}", value, fmt::join(classes, ", ")));
        value = static_cast<double>(found - classes.begin());
      }
      sample.targets.push_back(value);
    }
  }
  return {};
}

Result<void> SampleReader::add_node_features(const CausalRelations& relations, std::span<const int64_t> order,
                                             int64_t in_block, CausalSample& sample) const {
  const size_t features = node_features_.size();
  sample.node_features.resize(static_cast<size_t>(sample.size) * features);
  for (size_t feature = 0; feature < features; ++feature) {
    const std::string& name = config_.node_features[feature];
    const bool stored = node_features_[feature].has_value();
    std::vector<int64_t> lengths;
    if (!stored && name == "max_pathlen_future") lengths = relations.longest_future(order);
    if (!stored && name == "max_pathlen_past") lengths = relations.longest_past(order);
    for (int64_t element = 0; element < sample.size; ++element) {
      double value = 0;
      if (stored) {
        value = node_features_[feature]->at(in_block, block_size_, element);
        if (!std::isfinite(value))
          return sample_error(*node_features_[feature], in_block,
                              fmt::format("{} of element {} is not a finite number", value, element));
      } else if (!lengths.empty()) {
        value = static_cast<double>(lengths[static_cast<size_t>(element)]);
      } else {
        value = static_cast<double>(name == "in_degree" ? relations.predecessors(element).size()
                                                        : relations.successors(element).size());
      }
      sample.node_features[static_cast<size_t>(element) * features + feature] = static_cast<float>(value);
    }
  }
  return {};
}

}  // namespace oarlock::causal_set
