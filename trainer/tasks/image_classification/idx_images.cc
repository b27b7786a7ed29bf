#include "trainer/tasks/image_classification/idx_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/data/idx_file.h"

namespace oarlock {
namespace {

constexpr char kRemedy[] =
    "`apt-get install dataset-fashion-mnist` puts the files into /usr/share/datasets/fashion-mnist; or set data.path "
    "to "
    "the folder of your own copy";

struct NamedIdx {
  std::filesystem::path path;
  IdxFile idx;
};

// The plain file, or else the compressed one.
Result<NamedIdx> read_named(const std::filesystem::path& folder, const std::string& name, int dimensions) {
  std::error_code ignored;
  const std::filesystem::path plain = folder / name;
  const std::filesystem::path compressed = plain.string() + ".gz";
  const bool is_plain = std::filesystem::exists(plain, ignored);
  if (!is_plain && !std::filesystem::exists(compressed, ignored)) {
    return fail(ExitCode::kNoInput, fmt::format("{}: no {} or {}.gz there; {}", folder.string(), name, name, kRemedy));
  }
  const std::filesystem::path& path = is_plain ? plain : compressed;
  auto idx = read_idx_file(path, dimensions);
  if (!idx) return tl::make_unexpected(idx.error());
  return NamedIdx{path, std::move(*idx)};
}

}  // namespace

Result<IdxImages> IdxImages::open(const std::filesystem::path& folder, const std::string& split, int64_t classes,
                                  int64_t limit) {
  auto images = read_named(folder, split + "-images-idx3-ubyte", 3);
  if (!images) return tl::make_unexpected(images.error());
  auto labels = read_named(folder, split + "-labels-idx1-ubyte", 1);
  if (!labels) return tl::make_unexpected(labels.error());

  const int64_t count = images->idx.dims[0];
  if (labels->idx.dims[0] != count) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: expected {} labels, one for each image of {}, found {}", labels->path.string(), count,
                            images->path.string(), labels->idx.dims[0]));
  }
  const auto& values = labels->idx.bytes;
  const auto wrong = std::find_if(values.begin(), values.end(), [&](uint8_t label) { return label >= classes; });
  if (wrong != values.end()) {
    return fail(ExitCode::kDataErr, fmt::format("{}: label {} of sample {} is not below model.classes ({})",
                                                labels->path.string(), *wrong, wrong - values.begin(), classes));
  }
  const int64_t height = images->idx.dims[1];
  const int64_t width = images->idx.dims[2];
  if (limit > 0 && limit < count) {
    images->idx.bytes.resize(static_cast<size_t>(limit * height * width));
    images->idx.bytes.shrink_to_fit();
    labels->idx.bytes.resize(static_cast<size_t>(limit));
  }
  return IdxImages(std::move(images->idx.bytes), std::move(labels->idx.bytes), height, width);
}

IdxImages::IdxImages(std::vector<uint8_t> pixels, std::vector<uint8_t> labels, int64_t height, int64_t width)
    : pixels_(std::move(pixels)), labels_(std::move(labels)), height_(height), width_(width) {
  normalize({});
}

Normalization IdxImages::statistics() const {
  std::array<int64_t, 256> count{};
  for (const uint8_t pixel : pixels_) ++count[pixel];
  double sum = 0;
  double sum_of_squares = 0;
  for (size_t value = 0; value < count.size(); ++value) {
    const double scaled = static_cast<double>(value) / 255;
    sum += scaled * static_cast<double>(count[value]);
    sum_of_squares += scaled * scaled * static_cast<double>(count[value]);
  }
  const auto n = static_cast<double>(pixels_.size());
  const double mean = sum / n;
  const double variance = std::max(sum_of_squares / n - mean * mean, 0.0);
  return {.mean = mean, .std = variance > 0 ? std::sqrt(variance) : 1};
}

void IdxImages::normalize(const Normalization& normalization) {
  for (size_t value = 0; value < value_of_.size(); ++value) {
    value_of_[value] = static_cast<float>((static_cast<double>(value) / 255 - normalization.mean) / normalization.std);
  }
}

void IdxImages::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  const auto count = static_cast<int64_t>(indices.size());
  const auto pixels_each = static_cast<size_t>(height_ * width_);
  auto* to = batch.allocate("image", {count, 1, height_, width_}, at::kFloat).mutable_data_ptr<float>();
  auto* label = batch.allocate("label", {count}, at::kLong).mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    const uint8_t* from = pixels_.data() + static_cast<size_t>(index) * pixels_each;
    for (size_t i = 0; i < pixels_each; ++i) to[i] = value_of_[from[i]];
    to += pixels_each;
    *label++ = labels_[static_cast<size_t>(index)];
  }
}

}  // namespace oarlock
