// A list of structures, as JSON: [{...}, ...], each an object with a lattice, the atoms and a label:
//
//   lattice      "lattice": [[ax, ay, az], [bx, by, bz], [cx, cy, cz]], or "lattice": {"matrix": ...} (pymatgen), or
//                "lattice_mat" (jarvis)
//   elements     "species" or "elements": ["Sr", "Ti", ...], or "numbers": [38, 22, ...]
//   coordinates  "frac_coords" or "cart_coords": [[x, y, z], ...], or "coords" with "cartesian": true or false (jarvis)
//   or both      "sites": [{"species": [{"element": "Sr", "occu": 1}], "abc": [x, y, z]}, ...] (pymatgen)
//   label        under the name of the target property: a number, or a list of numbers
//
// What describes the crystal may stand in an object "structure" (pymatgen's Structure.as_dict()) or "atoms" (jarvis'
// Atoms.to_dict()) inside; the label stands beside it.
#pragma once

#include <memory>

#include "trainer/tasks/comformer/crystal_source.h"

namespace oarlock {

// All structures are held in memory, 32 bytes per atom; the text is not. kNoInput; kDataErr, naming the structure by
// its number, or where the text is no JSON.
Result<std::unique_ptr<CrystalSource>> open_structure_list(const CrystalSourceOptions& options);

}  // namespace oarlock
