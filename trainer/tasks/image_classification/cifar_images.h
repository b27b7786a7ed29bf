// A split of CIFAR-10 or CIFAR-100 in its binary version, mapped into memory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/tasks/image_classification/image_set.h"

namespace oarlock {

// CIFAR-10: data_batch_1.bin ... data_batch_5.bin, test_batch.bin; CIFAR-100: train.bin, test.bin, of which the fine
// labels are taken.
enum class CifarKind { kCifar10, kCifar100 };

// Names of the files of a split, in order.
std::vector<std::string> cifar_files(CifarKind kind, ImageSplit split);

// The first `limit` samples (0: all) of the files, which lie in the folder, or in the one inside of it that the archive
// makes (cifar-10-batches-bin, cifar-100-binary). kNoInput: a file is not there, with the remedy. kDataErr: a file that
// is cut off, a label that is not below `classes`; file and record are named.
Result<ImageSet> read_cifar_images(CifarKind kind, const std::filesystem::path& folder, ImageSplit split,
                                   int64_t classes, int64_t limit);

// The folder that has this file: the one given, or the archive's in it; empty: neither.
std::filesystem::path cifar_folder(CifarKind kind, const std::filesystem::path& folder, const std::string& file);

}  // namespace oarlock
