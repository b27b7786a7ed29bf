// oarlock-bench-loader: samples per second of the loader for images in memory: of 784 bytes (Fashion-MNIST) and of
// 12,288 bytes (CIFAR-10 in float32). Prints one line of JSON.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "ddp/distributed_sampler.h"
#include "trainer/data/batch.h"
#include "trainer/data/data_loader.h"

namespace {

class Images final : public oarlock::Dataset {
 public:
  Images(int64_t size, at::IntArrayRef shape, at::ScalarType type) : labels_(torch::zeros({size}, torch::kLong)) {
    std::vector<int64_t> sizes = {size};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    images_ = oarlock::empty_samples(sizes, type).zero_();
  }
  int64_t size() const override { return images_.size(0); }
  void make_batch(std::span<const int64_t> indices, uint64_t, oarlock::Batch& batch) const override {
    oarlock::stack_rows(images_, indices, "image", batch);
    oarlock::stack_rows(labels_, indices, "label", batch);
  }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

double seconds_of(const oarlock::Dataset& data, const oarlock::DistributedSampler& sampler, int threads,
                  int64_t epochs) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    oarlock::DataLoader loader(data, sampler.indices(epoch), {.batch_size = 64, .threads = threads});
    while (loader.next()) {
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t size = argc > 1 ? std::atoll(argv[1]) : 20000;
  const int64_t epochs = argc > 2 ? std::atoll(argv[2]) : 10;
  at::set_num_threads(1);
  const auto sampler = oarlock::DistributedSampler::create({.size = size, .seed = 1});
  if (!sampler || epochs < 1) {
    std::fprintf(stderr, "oarlock-bench-loader: error: SAMPLES and EPOCHS must be at least 1\n");
    return 64;
  }
  const auto rates = [&](const Images& data) {
    seconds_of(data, *sampler, 0, 1);  // touches the pages of the samples
    const auto rate = [&](int threads) {
      return static_cast<double>(size * epochs) / seconds_of(data, *sampler, threads, epochs);
    };
    const double none = rate(0);
    return fmt::format("{{\"threads_0\": {}, \"threads_2\": {}}}", none, rate(2));
  };
  fmt::print("{{\"small\": {}, \"large\": {}}}\n", rates(Images(size, {1, 28, 28}, torch::kByte)),
             rates(Images(size, {3, 32, 32}, torch::kFloat)));
  return 0;
}
