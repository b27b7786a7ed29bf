#include "workloads/causal_set/generator.h"

#include <blosc.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/data/random.h"

namespace oarlock::causal_set {

namespace {

std::vector<Relation> all_relations(int64_t size, const std::vector<Relation>& some) {
  const CausalRelations relations(size, some);
  return relations.closure(*relations.order());
}

}  // namespace

std::vector<Relation> sprinkle_diamond(int64_t size, uint64_t seed) {
  struct Point {
    float u;
    float v;
  };
  SampleRandom random(seed, 0);
  std::vector<Point> points(static_cast<size_t>(size));
  for (Point& point : points) {
    point.u = random.uniform();
    point.v = random.uniform();
  }
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.u + a.v < b.u + b.v; });
  std::vector<Relation> out;
  for (int64_t to = 0; to < size; ++to) {
    for (int64_t from = 0; from < to; ++from) {
      const Point& earlier = points[static_cast<size_t>(from)];
      const Point& later = points[static_cast<size_t>(to)];
      if (earlier.u < later.u && earlier.v < later.v) out.push_back({from, to});
    }
  }
  return out;
}

std::vector<Relation> kleitman_rothschild(int64_t size, uint64_t seed) {
  SampleRandom random(seed, 0);
  const int64_t quarter = size / 4;
  const auto layer = [&](int64_t element) { return element < quarter ? 0 : (element < size - quarter ? 1 : 2); };
  std::vector<Relation> some;
  for (int64_t to = 0; to < size; ++to) {
    for (int64_t from = 0; from < to; ++from) {
      if (layer(to) == layer(from) + 1 && random.uniform() < 0.5F) some.push_back({from, to});
    }
  }
  return all_relations(size, some);
}

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Values = std::vector<uint8_t>;

// An array of small numbers, chunk by chunk.
class ArrayWriter {
 public:
  // The samples are the first axis of `shape` and `chunk`.
  ArrayWriter(fs::path directory, std::vector<int64_t> shape, std::vector<int64_t> chunk, bool reversed)
      : directory_(std::move(directory)), shape_(std::move(shape)), chunk_(std::move(chunk)), reversed_(reversed) {}

  Result<void> begin() const {
    RETURN_IF_ERROR(make_writable_directory(directory_));
    const Json metadata = {
        {"zarr_format", 2},
        {"shape", ordered(shape_)},
        {"chunks", ordered(chunk_)},
        {"dtype", "|u1"},
        {"fill_value", 0},
        {"order", "C"},
        {"filters", nullptr},
        {"dimension_separator", "."},
        {"compressor", {{"id", "blosc"}, {"cname", "lz4"}, {"clevel", 9}, {"shuffle", 2}, {"blocksize", 0}}}};
    return write_file_atomically(directory_ / ".zarray", metadata.dump(2) + "\n");
  }

  // Writes the chunk with index `number` on the first axis and 0 on all others, in row-major order.
  Result<void> write(int64_t number, const Values& values) const {
    const Values stored = reversed_ ? transposed(values) : values;
    std::vector<uint8_t> bytes(stored.size() + BLOSC_MAX_OVERHEAD);
    const int size = blosc_compress_ctx(9, BLOSC_BITSHUFFLE, 1, stored.size(), stored.data(), bytes.data(),
                                        bytes.size(), "lz4", 0, 1);
    if (size <= 0) return fail(ExitCode::kSoftware, "Blosc failed to compress a chunk");
    std::vector<int64_t> numbers(shape_.size(), 0);
    numbers.front() = number;
    const fs::path path = directory_ / fmt::format("{}", fmt::join(ordered(numbers), "."));
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), size);
    file.close();
    if (!file) return fail_errno(errno, fmt::format("{}: cannot be written", path.string()));
    return {};
  }

 private:
  std::vector<int64_t> ordered(std::vector<int64_t> sizes) const {
    if (reversed_) std::reverse(sizes.begin(), sizes.end());
    return sizes;
  }

  // Only the chunk of a matrix changes: all others have one sample or one axis.
  Values transposed(const Values& values) const {
    if (chunk_.size() < 3) return values;
    const auto size = static_cast<size_t>(chunk_[1]);
    Values out(values.size());
    for (size_t i = 0; i < size; ++i)
      for (size_t j = 0; j < size; ++j) out[j * size + i] = values[i * size + j];
    return out;
  }

  fs::path directory_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> chunk_;
  bool reversed_;
};

Values matrix_of(const std::vector<Relation>& relations, int64_t elements) {
  Values out(static_cast<size_t>(elements * elements), 0);
  for (const auto& [from, to] : relations) out[static_cast<size_t>(from * elements + to)] = 1;
  return out;
}

Values padded(int64_t elements, int64_t size, const std::function<size_t(int64_t)>& value) {
  Values out(static_cast<size_t>(elements), 0);
  for (int64_t i = 0; i < size; ++i) out[static_cast<size_t>(i)] = static_cast<uint8_t>(value(i));
  return out;
}

class StoreWriter {
 public:
  StoreWriter(const fs::path& directory, const GeneratedStore& store) : store_(store) {
    const int64_t n = store.samples;
    const int64_t elements = store.max_elements;
    for (const char* name : {"adjacency_matrix", "link_matrix"})
      matrices_.emplace_back(directory / name, std::vector{n, elements, elements},
                             std::vector{int64_t{1}, elements, elements}, store.reversed);
    for (const char* name : {"in_degree", "out_degree", "max_pathlen_future", "max_pathlen_past"})
      rows_.emplace_back(directory / name, std::vector{n, elements}, std::vector{int64_t{1}, elements}, store.reversed);
    for (const char* name : {"cset_size", "manifold_like"})
      columns_.emplace_back(directory / name, std::vector{n}, std::vector{n}, store.reversed);
  }

  Result<void> write() {
    for (const auto* arrays : {&matrices_, &rows_, &columns_}) {
      for (const ArrayWriter& array : *arrays) {
        RETURN_IF_ERROR(array.begin());
      }
    }
    Values sizes;
    Values labels;
    for (int64_t sample = 0; sample < store_.samples; ++sample) {
      SampleRandom random(store_.seed, sample);
      const int64_t size = store_.min_elements + random.below(store_.max_elements - store_.min_elements + 1);
      sizes.push_back(static_cast<uint8_t>(size));
      labels.push_back(sample % 2 == 0 ? 1 : 0);
      RETURN_IF_ERROR(write_sample(sample, size, random.next()));
    }
    return columns_[0].write(0, sizes).and_then([&] { return columns_[1].write(0, labels); });
  }

 private:
  Result<void> write_sample(int64_t sample, int64_t size, uint64_t seed) {
    const std::vector<Relation> all = sample % 2 == 0 ? sprinkle_diamond(size, seed) : kleitman_rothschild(size, seed);
    const CausalRelations relations(size, all);
    const std::vector<int64_t> order = *relations.order();
    const std::vector<Relation> linked = relations.links(order);
    const CausalRelations links(size, linked);
    const std::vector<int64_t> future = links.longest_future(order);
    const std::vector<int64_t> past = links.longest_past(order);
    const int64_t elements = store_.max_elements;
    const auto length = [](const std::vector<int64_t>& lengths) {
      return [&lengths](int64_t i) { return static_cast<size_t>(lengths[static_cast<size_t>(i)]); };
    };
    const std::pair<const ArrayWriter*, Values> parts[] = {
        {&matrices_[0], matrix_of(all, elements)},
        {&matrices_[1], matrix_of(linked, elements)},
        {&rows_[0], padded(elements, size, [&](int64_t i) { return links.predecessors(i).size(); })},
        {&rows_[1], padded(elements, size, [&](int64_t i) { return links.successors(i).size(); })},
        {&rows_[2], padded(elements, size, length(future))},
        {&rows_[3], padded(elements, size, length(past))},
    };
    for (const auto& [array, values] : parts) {
      RETURN_IF_ERROR(array->write(sample, values));
    }
    return {};
  }

  GeneratedStore store_;
  std::vector<ArrayWriter> matrices_;
  std::vector<ArrayWriter> rows_;
  std::vector<ArrayWriter> columns_;
};

}  // namespace

Result<void> write_generated_store(const fs::path& directory, const GeneratedStore& store) {
  std::error_code ignored;
  if (fs::exists(directory, ignored))
    return fail(ExitCode::kCantCreate, fmt::format("{}: already exists; choose another directory", directory.string()));
  RETURN_IF_ERROR(make_writable_directory(directory));
  return write_file_atomically(directory / ".zgroup", "{\"zarr_format\": 2}\n").and_then([&] {
    return StoreWriter(directory, store).write();
  });
}

}  // namespace oarlock::causal_set
