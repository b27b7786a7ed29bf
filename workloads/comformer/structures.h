// Labeled crystals from files: extended XYZ, or a list of structures as JSON.
//
// The JSON text is [{...}, ...]. Each object has a lattice, atoms and a label:
//
//   lattice      "lattice": [[ax, ay, az], [bx, by, bz], [cx, cy, cz]], or "lattice": {"matrix": ...} (pymatgen), or
//                "lattice_mat" (jarvis)
//   elements     "species" or "elements": ["Sr", "Ti", ...], or "numbers": [38, 22, ...]
//   coordinates  "frac_coords" or "cart_coords": [[x, y, z], ...], or "coords" with "cartesian": true or false (jarvis)
//   or both      "sites": [{"species": [{"element": "Sr", "occu": 1}], "abc": [x, y, z]}, ...] (pymatgen)
//   label        under the name of the target property: a number, or a list of numbers
//
// The crystal may be in an inner object "structure" (pymatgen's Structure.as_dict()) or "atoms" (jarvis'
// Atoms.to_dict()); the label is always in the outer object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "workloads/comformer/config.h"
#include "workloads/formats/crystal.h"

namespace oarlock::comformer {

struct LabeledCrystal {
  Crystal crystal;
  std::vector<double> label;  // finite
};

class CrystalSource {
 public:
  virtual ~CrystalSource() = default;

  virtual int64_t size() const = 0;
  // `structure` must be below size(). Thread-safe. Fails with kDataErr, naming the place.
  virtual Result<LabeledCrystal> read(int64_t structure) const = 0;
  // "FILE:LINE (frame N)", for messages.
  virtual std::string place(int64_t structure) const = 0;
};

struct CrystalSourceOptions {
  std::filesystem::path path;   // *.json is a list, any other file is extended XYZ
  std::string target_property;  // the key of the label
  int64_t targets = 1;          // numbers per label
  Ties ties = Ties::kTolerant;  // kExact: Cartesian coordinates as original_cartesian() computes them
};

// Opens a file. An extended XYZ file is read on demand; the structures of a JSON list are kept in memory (32 bytes per
// atom), its text is not. Fails with kNoInput, kIoErr or kDataErr, naming the structure by its index.
Result<std::unique_ptr<CrystalSource>> open_crystals(const CrystalSourceOptions& options);

}  // namespace oarlock::comformer
