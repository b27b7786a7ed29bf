#include "trainer/tasks/image_classification/idx_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

Result<ImageSet> read_idx_images(const std::filesystem::path& folder, ImageSplit split, int64_t classes,
                                 int64_t limit) {
  const std::string name = split == ImageSplit::kTrain ? "train" : "t10k";
  auto images = read_named(folder, name + "-images-idx3-ubyte", 3);
  if (!images) return tl::make_unexpected(images.error());
  auto labels = read_named(folder, name + "-labels-idx1-ubyte", 1);
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
  const int64_t kept = limit > 0 ? std::min(limit, count) : count;
  images->idx.bytes.resize(static_cast<size_t>(kept * height * width));
  images->idx.bytes.shrink_to_fit();
  labels->idx.bytes.resize(static_cast<size_t>(kept));

  const auto storage = std::make_shared<const std::vector<uint8_t>>(std::move(images->idx.bytes));
  ImageSet set{.shape = {1, height, width}, .pixels = {}, .labels = std::move(labels->idx.bytes), .storage = storage};
  for (int64_t i = 0; i < kept; ++i) set.pixels.push_back(storage->data() + i * height * width);
  return set;
}

}  // namespace oarlock
