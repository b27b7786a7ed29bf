// A small data set in CIFAR's binary format: images of noise around a color of their class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace oarlock::test {

class CifarDirectory {
 public:
  // Writes five training files and a test file of `per_file` records each, in which the labels cycle.
  explicit CifarDirectory(int per_file = 4, int classes = 10) {
    for (int i = 1; i <= 5; ++i) write("data_batch_" + std::to_string(i) + ".bin", per_file, classes, i);
    write("test_batch.bin", per_file, classes, 6);
  }

  const std::filesystem::path& path() const { return directory_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }

  // Writes another file of the format, with `labels` label bytes per record. All of them but the last are 255.
  void write(const std::string& name, int records, int classes, unsigned seed, int labels = 1) const {
    std::mt19937 random(seed);
    std::ofstream out(path() / name, std::ios::binary);
    for (int record = 0; record < records; ++record) {
      const int label = record % classes;
      out << std::string(static_cast<size_t>(labels - 1), '\xff') << static_cast<char>(label);
      for (int channel = 0; channel < 3; ++channel) {
        const unsigned color = static_cast<unsigned>(label * (channel + 2) * 37) % 200;
        for (int i = 0; i < 32 * 32; ++i) out.put(static_cast<char>(color + random() % 56));
      }
    }
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace oarlock::test
