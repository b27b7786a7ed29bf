// The files that crystals with labels are read from: extended XYZ, or a JSON list (structure_list.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/crystal.h"

namespace oarlock {

struct LabelledCrystal {
  Crystal crystal;
  std::vector<double> label;  // finite
};

class CrystalSource {
 public:
  virtual ~CrystalSource() = default;

  virtual int64_t size() const = 0;
  // `structure` must be below size(). Thread-safe. kDataErr, naming the place.
  virtual Result<LabelledCrystal> read(int64_t structure) const = 0;
  // For messages: "FILE:LINE (frame N)".
  virtual std::string place(int64_t structure) const = 0;
};

struct CrystalSourceOptions {
  std::filesystem::path path;   // *.json is a list, anything else extended XYZ
  std::string target_property;  // the label's key
  int64_t targets = 1;          // numbers of a label
};

// kNoInput, kIoErr, kDataErr.
Result<std::unique_ptr<CrystalSource>> open_crystals(const CrystalSourceOptions& options);

// Whether these can be a label. kDataErr, without a place: too few or too many, or one that is not finite.
Result<void> check_label(const std::vector<double>& label, const CrystalSourceOptions& options);

}  // namespace oarlock
