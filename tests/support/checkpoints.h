// Checkpoints of a few tensors, for tests.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/store.h"

namespace oarlock::test {

// Return the value or the error of a result. They throw if it has none, which fails the test with the reason, and the
// next test runs; an unchecked * or -> would end the whole program.
template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error("unexpected error: " + result.error().message);
  return std::move(*result);
}
template <typename T>
T must(std::optional<T> value) {
  if (!value) throw std::runtime_error("unexpected: there is no value");
  return std::move(*value);
}
template <typename T>
Error error_of(const Result<T>& result) {
  if (result) throw std::runtime_error("unexpected success");
  return result.error();
}

// A checkpoint in which every value is derived from its step.
inline Checkpoint checkpoint_of(int64_t step, int64_t floats = 1000) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.epoch = step / 10;
  checkpoint.state.epoch_samples = step * 64;
  checkpoint.state.world_size = 2;
  checkpoint.state.high_water_step = step + 5;
  checkpoint.state.sections = {{"plateau", {{"best", 0.25}}}};
  checkpoint.state.extra = {{"learning_rate", 0.5}, {"note", "käse"}};
  checkpoint.tensors[kModelTensors] = {{"conv1.weight", at::full({floats}, static_cast<double>(step))},
                                       {"conv1.bias", at::full({3}, static_cast<double>(step), at::kDouble)}};
  checkpoint.tensors["optimizer"] = {{"conv1.weight.exp_avg", at::full({floats}, static_cast<double>(-step))}};
  checkpoint.tensors["noise"] = {{"rank0.cpu", at::arange(256).to(at::kByte)}};
  return checkpoint;
}

inline void expect_is(const Checkpoint& checkpoint, int64_t step) {
  EXPECT_EQ(checkpoint.state.step, step);
  const at::Tensor weight = checkpoint.tensors.at(kModelTensors).at("conv1.weight");
  EXPECT_TRUE(at::equal(weight, at::full(weight.sizes(), static_cast<double>(step))));
  const at::Tensor average = checkpoint.tensors.at("optimizer").at("conv1.weight.exp_avg");
  EXPECT_TRUE(at::equal(average, at::full(average.sizes(), static_cast<double>(-step))));
}

inline std::unique_ptr<CheckpointStore> open_store(const std::filesystem::path& root, CheckpointOwner owner = {},
                                                   int keep = 0) {
  return must(CheckpointStore::open({.root = root, .owner = std::move(owner), .keep = keep}, Logger::silent()));
}

inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Runs the body in a child process. Returns its exit code, or -signal; 254 if the body threw an exception.
inline int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int code = 254;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the child process threw: %s\n", error.what());
    }
    _exit(code);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace oarlock::test
