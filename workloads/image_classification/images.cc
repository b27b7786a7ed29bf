#include "workloads/image_classification/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "workloads/formats/image_files.h"

namespace oarlock::image_classification {

namespace {

constexpr char kRemedy[] =
    "`apt-get install dataset-fashion-mnist` installs the files into /usr/share/datasets/fashion-mnist; or set "
    "data.path to the directory of your copy";

struct NamedIdx {
  std::filesystem::path path;
  IdxFile idx;
};

// Reads the plain file if it exists, otherwise the compressed one.
Result<NamedIdx> read_named(const std::filesystem::path& directory, const std::string& name, int dimensions) {
  std::error_code ignored;
  const std::filesystem::path plain = directory / name;
  const std::filesystem::path compressed = plain.string() + ".gz";
  const bool is_plain = std::filesystem::exists(plain, ignored);
  if (!is_plain && !std::filesystem::exists(compressed, ignored)) {
    return fail(ExitCode::kNoInput, fmt::format("{}: no {} or {}.gz; {}", directory.string(), name, name, kRemedy));
  }
  const std::filesystem::path& path = is_plain ? plain : compressed;
  ASSIGN_OR_RETURN(auto idx, read_idx_file(path, dimensions));
  return NamedIdx{path, std::move(idx)};
}

}  // namespace

Result<ImageSet> read_idx_images(const std::filesystem::path& directory, ImageSplit split, int64_t classes,
                                 int64_t limit) {
  const std::string name = split == ImageSplit::kTrain ? "train" : "t10k";
  ASSIGN_OR_RETURN(auto images, read_named(directory, name + "-images-idx3-ubyte", 3));
  ASSIGN_OR_RETURN(auto labels, read_named(directory, name + "-labels-idx1-ubyte", 1));

  const int64_t count = images.idx.dims[0];
  if (labels.idx.dims[0] != count) {
    return fail(ExitCode::kDataErr, fmt::format("{}: expected {} labels, one for each image of {}, found {}",
                                                labels.path.string(), count, images.path.string(), labels.idx.dims[0]));
  }
  const auto& values = labels.idx.bytes;
  const auto wrong = std::find_if(values.begin(), values.end(), [&](uint8_t label) { return label >= classes; });
  if (wrong != values.end()) {
    return fail(ExitCode::kDataErr, fmt::format("{}: label {} of sample {} is not below model.classes ({})",
                                                labels.path.string(), *wrong, wrong - values.begin(), classes));
  }
  const int64_t height = images.idx.dims[1];
  const int64_t width = images.idx.dims[2];
  const int64_t kept = limit > 0 ? std::min(limit, count) : count;
  images.idx.bytes.resize(static_cast<size_t>(kept * height * width));
  images.idx.bytes.shrink_to_fit();
  labels.idx.bytes.resize(static_cast<size_t>(kept));

  RETURN_IF_ERROR(expect_memory(static_cast<uint64_t>(kept), sizeof(const uint8_t*), images.path.string()));
  const auto storage = std::make_shared<const std::vector<uint8_t>>(std::move(images.idx.bytes));
  ImageSet set{.shape = {1, height, width}, .pixels = {}, .labels = std::move(labels.idx.bytes), .storage = storage};
  set.pixels.reserve(static_cast<size_t>(kept));
  for (int64_t i = 0; i < kept; ++i) set.pixels.push_back(storage->data() + i * height * width);
  return set;
}

namespace {

struct Variant {
  const char* archive;
  const char* directory;  // created by unpacking the archive
  int64_t labels;         // per record
  std::vector<std::string> train;
  std::vector<std::string> test;
};

Variant variant(CifarKind kind) {
  if (kind == CifarKind::kCifar100) {
    return {"cifar-100-binary.tar.gz", "cifar-100-binary", 2, {"train.bin"}, {"test.bin"}};
  }
  return {"cifar-10-binary.tar.gz",
          "cifar-10-batches-bin",
          1,
          {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
          {"test_batch.bin"}};
}

// Adds the records of one file until the set has `limit` samples.
Result<void> add_records(const CifarFile& file, const std::filesystem::path& path, int64_t classes, int64_t limit,
                         ImageSet& set) {
  const int64_t records = limit == 0 ? file.size() : std::min(limit, file.size());
  RETURN_IF_ERROR(
      expect_memory(static_cast<uint64_t>(records), sizeof(const uint8_t*) + sizeof(uint8_t), path.string()));
  for (int64_t record = 0; record < file.size() && (limit == 0 || set.size() < limit); ++record) {
    const uint8_t label = file.label(record);
    if (label >= classes) {
      return fail(ExitCode::kDataErr,
                  fmt::format("{}: label {} of record {} is not below model.classes ({}); set model.classes to the "
                              "classes of the data, or download the file again",
                              path.string(), label, record, classes));
    }
    set.labels.push_back(label);
    set.pixels.push_back(file.pixels(record));
  }
  return {};
}

}  // namespace

std::vector<std::string> cifar_files(CifarKind kind, ImageSplit split) {
  Variant of = variant(kind);
  return std::move(split == ImageSplit::kTrain ? of.train : of.test);
}

std::filesystem::path cifar_directory(CifarKind kind, const std::filesystem::path& directory, const std::string& file) {
  std::error_code ignored;
  for (const auto& candidate : {directory, directory / variant(kind).directory}) {
    if (std::filesystem::exists(candidate / file, ignored)) return candidate;
  }
  return {};
}

Result<ImageSet> read_cifar_images(CifarKind kind, const std::filesystem::path& directory, ImageSplit split,
                                   int64_t classes, int64_t limit) {
  const Variant of = variant(kind);
  const auto files = std::make_shared<std::vector<CifarFile>>();
  ImageSet set{.shape = {CifarFile::kChannels, CifarFile::kSide, CifarFile::kSide},
               .pixels = {},
               .labels = {},
               .storage = files};
  for (const std::string& name : cifar_files(kind, split)) {
    const std::filesystem::path found = cifar_directory(kind, directory, name);
    if (found.empty()) {
      return fail(ExitCode::kNoInput,
                  fmt::format("{}: no {}; unpack {} of https://www.cs.toronto.edu/~kriz/cifar.html into it, or set "
                              "data.path to the directory of your copy",
                              directory.string(), name, of.archive));
    }
    ASSIGN_OR_RETURN(CifarFile file, CifarFile::open(found / name, of.labels));
    RETURN_IF_ERROR(add_records(file, found / name, classes, limit, set));
    files->push_back(std::move(file));
  }
  return set;
}

}  // namespace oarlock::image_classification
