// The data of image_classification: formats, damaged files, normalization, augmentation.
#include "workloads/image_classification/data.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "tests/support/cifar_directory.h"
#include "tests/support/image_task.h"
#include "trainer/data/data_loader.h"

namespace oarlock::image_classification {
namespace {

namespace fs = std::filesystem;
using test::all_of;
using test::bytes_of;
using test::CifarDirectory;
using testing::AllOf;
using testing::HasSubstr;

ImageDataConfig config_of(const fs::path& path) {
  ImageDataConfig config;
  config.path = path.string();
  return config;
}

ImageData opened(const ImageDataConfig& config, int64_t classes = 10) {
  Result<ImageData> data = open_image_data(config, classes);
  EXPECT_TRUE(data) << data.error().message;
  return data ? std::move(*data) : ImageData{};
}

Error error_of(const ImageDataConfig& config, int64_t classes = 10) {
  const Result<ImageData> data = open_image_data(config, classes);
  EXPECT_FALSE(data);
  return data ? Error{} : data.error();
}

std::vector<int64_t> labels_of(const Dataset& dataset) {
  const at::Tensor labels = make_batch(dataset, all_of(dataset))["label"];
  return {labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel()};
}

TEST(Cifar, RecordsAreLabelAndPlanesInTheOrderOfTheFiles) {
  const CifarDirectory directory(3);
  ImageDataConfig config = config_of(directory.path());
  config.mean = {0, 0, 0};
  config.std = {1, 1, 1};
  const ImageData data = opened(config);
  EXPECT_EQ(data.train->size(), 15);
  EXPECT_EQ(data.eval->size(), 3);
  EXPECT_EQ(labels_of(*data.eval), (std::vector<int64_t>{0, 1, 2}));
  const at::Tensor images = make_batch(*data.train, all_of(*data.train))["image"];
  EXPECT_EQ(images.sizes(), at::IntArrayRef({15, 3, 32, 32}));
  for (int64_t i = 0; i < 15; ++i) {
    const std::string file = bytes_of(directory / ("data_batch_" + std::to_string(i / 3 + 1) + ".bin"));
    std::vector<float> expected;
    for (int64_t byte = 0; byte < 3072; ++byte)
      expected.push_back(static_cast<float>(static_cast<uint8_t>(file[static_cast<size_t>(i % 3 * 3073 + 1 + byte)])) /
                         255);
    EXPECT_TRUE(at::allclose(images[i].flatten(), at::tensor(expected), 1e-6, 1e-7)) << i;
  }
}

TEST(Cifar, TheDirectoryOfTheArchiveIsFoundAndALimitEndsTheReading) {
  const CifarDirectory directory(4);
  fs::create_directory(directory / "outer");
  fs::create_directory(directory / "outer/cifar-10-batches-bin");
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    if (entry.is_regular_file())
      fs::rename(entry.path(), directory / "outer/cifar-10-batches-bin" / entry.path().filename());
  }
  ImageDataConfig config = config_of(directory / "outer");
  config.train_samples = 6;
  EXPECT_EQ(labels_of(*opened(config).train), (std::vector<int64_t>{0, 1, 2, 3, 0, 1}));
}

TEST(Cifar, OfAHundredClassesTheFineLabelsAreTaken) {
  const CifarDirectory directory;
  for (const auto& entry : fs::directory_iterator(directory.path())) fs::remove(entry.path());
  directory.write("train.bin", 120, 100, 1, /*labels=*/2);
  directory.write("test.bin", 7, 100, 2, /*labels=*/2);
  const ImageData data = opened(config_of(directory.path()), 100);
  EXPECT_EQ(data.train->size(), 120);
  EXPECT_EQ(labels_of(*data.train)[99], 99);
  EXPECT_EQ(labels_of(*data.eval), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Cifar, AFileThatIsCutOffIsNamedWithItsRecord) {
  const CifarDirectory directory(4);
  fs::resize_file(directory / "data_batch_3.bin", 2 * 3073 + 17);
  const Error error = error_of(config_of(directory.path()));
  EXPECT_EQ(error.code, ExitCode::kDataErr);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("data_batch_3.bin: 6163 bytes are not a multiple of 3073"),
                    HasSubstr("record 2 (from 0) ends after 17 bytes"), HasSubstr("fetch the file again")));
  fs::resize_file(directory / "data_batch_3.bin", 0);
  EXPECT_THAT(error_of(config_of(directory.path())).message, HasSubstr("data_batch_3.bin: has no records"));
}

TEST(Cifar, AFileThatIsNotThereIsNamedWithTheRemedy) {
  const CifarDirectory directory(4);
  fs::remove(directory / "data_batch_4.bin");
  const Error error = error_of(config_of(directory.path()));
  EXPECT_EQ(error.code, ExitCode::kNoInput);
  EXPECT_THAT(error.message, AllOf(HasSubstr("no data_batch_4.bin; "), HasSubstr("unpack cifar-10-binary.tar.gz"),
                                   HasSubstr("data.path")));
  ImageDataConfig missing = config_of("/nonexistent");
  missing.format = ImageFormat::kCifar100;
  EXPECT_THAT(error_of(missing).message, AllOf(HasSubstr("/nonexistent: no train.bin"), HasSubstr("cifar-100-binary")));
}

TEST(Cifar, AWrongClassCountIsFoundInTheData) {
  const CifarDirectory directory(4, 4);
  const Error error = error_of(config_of(directory.path()), 3);
  EXPECT_EQ(error.code, ExitCode::kDataErr);
  EXPECT_THAT(error.message, AllOf(HasSubstr("data_batch_1.bin: label 3 of record 3 is not below model.classes (3)"),
                                   HasSubstr("set model.classes")));
}

TEST(Fingerprint, DependsOnTheFilesAndNotOnTheirDirectory) {
  const CifarDirectory directory(3);
  const CifarDirectory copy(3);
  const CifarDirectory changed(3);
  changed.write("data_batch_3.bin", 3, 10, 99);
  const ImageData data = opened(config_of(directory.path()));
  const ImageData same = opened(config_of(copy.path()));
  const ImageData other = opened(config_of(changed.path()));
  EXPECT_EQ(data.train->fingerprint(), same.train->fingerprint());
  EXPECT_NE(data.train->fingerprint(), data.eval->fingerprint());
  EXPECT_NE(other.train->fingerprint(), data.train->fingerprint());
  EXPECT_EQ(other.eval->fingerprint(), data.eval->fingerprint());
}

TEST(ImageOptions, MustFitTheImages) {
  const CifarDirectory directory;
  ImageDataConfig config = config_of(directory.path());
  config.mean = {0.5};
  config.std = {0.5};
  EXPECT_THAT(error_of(config).message, HasSubstr("data.mean, data.std: 1 numbers for the 3 channels"));
  config = config_of(directory.path());
  config.augment.crop_padding = 32;
  EXPECT_EQ(error_of(config).code, ExitCode::kConfig);
  EXPECT_THAT(error_of(config).message, HasSubstr("data.augment.crop_padding: 32 is not below the size"));
}

TEST(Normalization, IsOfEachChannelOfTheTrainingImages) {
  const CifarDirectory directory(20);
  const ImageData data = opened(config_of(directory.path()));
  const at::Tensor images = make_batch(*data.train, all_of(*data.train))["image"].to(at::kDouble);
  const at::Tensor mean = images.mean({0, 2, 3});
  const at::Tensor deviation = images.var({0, 2, 3}, /*unbiased=*/false).sqrt();
  EXPECT_LT(mean.abs().max().item<double>(), 1e-5);
  EXPECT_LT((deviation - 1).abs().max().item<double>(), 1e-5);
}

// Every view of an image, by padding, slicing and flipping a tensor, as torchvision does.
TEST(Augmentation, ViewsAreThoseOfPaddingCroppingFlippingAndNormalizing) {
  const ImageShape shape{.channels = 2, .height = 5, .width = 7};
  std::vector<uint8_t> bytes(2 * 5 * 7);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 83 + 19);
  PixelTables tables(2);
  for (size_t value = 0; value < 256; ++value) {
    tables[0][value] = (static_cast<float>(value) / 255 - 0.5F) / 0.25F;
    tables[1][value] = (static_cast<float>(value) / 255 - 0.25F) / 0.5F;
  }
  constexpr int64_t kPadding = 3;
  const at::Tensor image = at::from_blob(bytes.data(), {2, 5, 7}, at::kByte).to(at::kFloat).div(255);
  const at::Tensor padded = at::constant_pad_nd(image, {kPadding, kPadding, kPadding, kPadding}, 0);
  const at::Tensor mean = at::tensor({0.5F, 0.25F}).view({2, 1, 1});
  const at::Tensor deviation = at::tensor({0.25F, 0.5F}).view({2, 1, 1});
  for (int64_t top = -kPadding; top <= kPadding; ++top) {
    for (int64_t left = -kPadding; left <= kPadding; ++left) {
      for (const bool flipped : {false, true}) {
        at::Tensor expected = padded.narrow(1, top + kPadding, 5).narrow(2, left + kPadding, 7);
        if (flipped) expected = expected.flip(2);
        const at::Tensor actual = at::empty({2, 5, 7});
        copy_view(bytes.data(), shape, {top, left, flipped}, tables, actual.mutable_data_ptr<float>());
        EXPECT_TRUE(at::allclose(actual, (expected - mean) / deviation, 1e-5, 1e-6))
            << top << " " << left << " " << flipped;
      }
    }
  }
}

TEST(Augmentation, EveryViewIsAsLikely) {
  const Augmentation augmentation{.crop_padding = 2, .flip = true};
  std::map<std::tuple<int64_t, int64_t, bool>, int> count;
  constexpr int kEach = 1000;
  constexpr int kViews = 5 * 5 * 2;
  for (int64_t sample = 0; sample < kEach * kViews; ++sample) {
    const View view = random_view(augmentation, 42, sample);
    ++count[{view.top, view.left, view.flipped}];
  }
  ASSERT_EQ(count.size(), static_cast<size_t>(kViews));
  for (const auto& [view, times] : count) EXPECT_NEAR(times, kEach, 5 * std::sqrt(kEach)) << std::get<0>(view);
  const View still = random_view({}, 42, 7);
  EXPECT_EQ(std::tuple(still.top, still.left, still.flipped), std::tuple(0, 0, false));
}

// By sample, so that a comparison does not depend on the order.
std::map<int64_t, at::Tensor> images_of(const Dataset& dataset, int64_t batch_size, int threads, uint64_t seed) {
  std::map<int64_t, at::Tensor> images;
  DataLoader loader(dataset, all_of(dataset), {.batch_size = batch_size, .threads = threads, .seed = seed});
  while (const auto batch = loader.next()) {
    for (int64_t i = 0; i < batch->size(); ++i)
      images.emplace(batch->ids[static_cast<size_t>(i)], (*batch)["image"][i].clone());
  }
  return images;
}

TEST(Augmentation, DependsOnSeedAndSampleOnly) {
  const CifarDirectory directory(8);
  ImageDataConfig config = config_of(directory.path());
  config.augment = {.crop_padding = 4, .flip = true};
  const ImageData data = opened(config);
  const auto images = images_of(*data.train, 40, 0, 5);
  for (const auto& [batch_size, threads] : {std::pair<int64_t, int>{7, 0}, {1, 3}, {13, 2}}) {
    const auto again = images_of(*data.train, batch_size, threads, 5);
    for (const auto& [sample, image] : images) EXPECT_TRUE(at::equal(image, again.at(sample))) << sample;
  }
  const auto next_epoch = images_of(*data.train, 40, 0, 6);
  int different = 0;
  for (const auto& [sample, image] : images) different += at::equal(image, next_epoch.at(sample)) ? 0 : 1;
  EXPECT_GT(different, 35);
  const auto plain = images_of(*data.eval, 8, 0, 5);
  const auto plain_again = images_of(*data.eval, 8, 0, 6);
  for (const auto& [sample, image] : plain) EXPECT_TRUE(at::equal(image, plain_again.at(sample))) << "never augmented";
}

}  // namespace
}  // namespace oarlock::image_classification
