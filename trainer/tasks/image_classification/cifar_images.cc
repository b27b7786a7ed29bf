#include "trainer/tasks/image_classification/cifar_images.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "trainer/data/cifar_file.h"

namespace oarlock {
namespace {

struct Variant {
  const char* archive;
  const char* folder;  // that the archive makes
  int64_t labels;      // per record
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

// Adds the records of one file up to `limit` samples in all.
Result<void> add_records(const CifarFile& file, const std::filesystem::path& path, int64_t classes, int64_t limit,
                         ImageSet& set) {
  for (int64_t record = 0; record < file.size() && (limit == 0 || set.size() < limit); ++record) {
    const uint8_t label = file.label(record);
    if (label >= classes) {
      return fail(ExitCode::kDataErr,
                  fmt::format("{}: label {} of record {} is not below model.classes ({}); set model.classes to the "
                              "classes of the data, or fetch the file again",
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

std::filesystem::path cifar_folder(CifarKind kind, const std::filesystem::path& folder, const std::string& file) {
  std::error_code ignored;
  for (const auto& candidate : {folder, folder / variant(kind).folder}) {
    if (std::filesystem::exists(candidate / file, ignored)) return candidate;
  }
  return {};
}

Result<ImageSet> read_cifar_images(CifarKind kind, const std::filesystem::path& folder, ImageSplit split,
                                   int64_t classes, int64_t limit) {
  const Variant of = variant(kind);
  const auto files = std::make_shared<std::vector<CifarFile>>();
  ImageSet set{.shape = {CifarFile::kChannels, CifarFile::kSide, CifarFile::kSide},
               .pixels = {},
               .labels = {},
               .storage = files};
  for (const std::string& name : cifar_files(kind, split)) {
    const std::filesystem::path found = cifar_folder(kind, folder, name);
    if (found.empty()) {
      return fail(ExitCode::kNoInput,
                  fmt::format("{}: no {} there; unpack {} of https://www.cs.toronto.edu/~kriz/cifar.html in it, or set "
                              "data.path to the folder of your own copy",
                              folder.string(), name, of.archive));
    }
    Result<CifarFile> file = CifarFile::open(found / name, of.labels);
    if (!file) return tl::make_unexpected(file.error());
    const Result<void> added = add_records(*file, found / name, classes, limit, set);
    if (!added) return tl::make_unexpected(added.error());
    files->push_back(std::move(*file));
  }
  return set;
}

}  // namespace oarlock
