#include "workloads/comformer/structures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <optional>
#include <utility>

#include "common/error.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "workloads/comformer/crystal_graph.h"
#include "workloads/formats/crystal.h"
#include "workloads/formats/extxyz.h"
#include "workloads/formats/json_list.h"

namespace oarlock::comformer {

namespace {

using Json = nlohmann::json;

// Checks that the numbers can be a label. Fails with kDataErr, without a place, if their count is wrong or one of them
// is not finite.
Result<void> check_label(const std::vector<double>& label, const CrystalSourceOptions& options) {
  if (label.size() != static_cast<size_t>(options.targets)) {
    return fail(ExitCode::kDataErr, fmt::format("'{}' has {} numbers, but model.output_features is {}",
                                                options.target_property, label.size(), options.targets));
  }
  for (const double number : label) {
    if (!std::isfinite(number))
      return fail(ExitCode::kDataErr, fmt::format("'{}' is {}: a label must be a finite number; remove the structure "
                                                  "from the file, or select others by data.index",
                                                  options.target_property, number));
  }
  return {};
}

class ExtxyzCrystals final : public CrystalSource {
 public:
  ExtxyzCrystals(ExtxyzFile file, CrystalSourceOptions options)
      : file_(std::move(file)), options_(std::move(options)) {}

  int64_t size() const override { return file_.size(); }
  std::string place(int64_t structure) const override { return file_.place(structure); }

  Result<LabeledCrystal> read(int64_t structure) const override {
    ASSIGN_OR_RETURN(ExtxyzFrame frame, file_.read(structure));
    Result<std::vector<double>> label = label_of(frame.info);
    if (!label) return fail(ExitCode::kDataErr, fmt::format("{}: {}", place(structure), label.error().message));
    return LabeledCrystal{.crystal = std::move(frame.crystal), .label = std::move(*label)};
  }

 private:
  Result<std::vector<double>> label_of(const ExtxyzInfo& info) const {
    const auto found = info.find(options_.target_property);
    if (found == info.end()) {
      constexpr size_t kShown = 1000;  // characters
      std::vector<std::string> keys;
      for (const auto& [key, value] : info) keys.push_back(key);
      return fail(ExitCode::kDataErr,
                  fmt::format("no '{}' (data.target_property); the keys are {}", options_.target_property,
                              shortened(fmt::format("{}", fmt::join(keys, ", ")), kShown)));
    }
    Result<std::vector<double>> numbers = extxyz_numbers(found->second);
    if (!numbers) numbers.error().message = options_.target_property + ": " + numbers.error().message;
    return numbers.and_then(
        [&](const std::vector<double>& label) { return check_label(label, options_).map([&] { return label; }); });
  }

  ExtxyzFile file_;
  CrystalSourceOptions options_;
};

// Throws while a structure is parsed; the caller adds the index of the structure.
[[noreturn]] void reject(std::string message) { throw ErrorException({ExitCode::kDataErr, std::move(message)}); }

// Returns a value for a message.
std::string shown(const Json& value) { return shortened(value.dump()); }

const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

double number(const Json& value, const char* what) {
  if (!value.is_number()) reject(fmt::format("{}: {} is not a number", what, shown(value)));
  const auto out = value.get<double>();
  if (!std::isfinite(out)) reject(fmt::format("{}: not finite", what));
  return out;
}

Vector3 vector3(const Json& value, const char* what) {
  if (!value.is_array() || value.size() != 3)
    reject(fmt::format("{}: {} is not a list of 3 numbers", what, shown(value)));
  return {number(value[0], what), number(value[1], what), number(value[2], what)};
}

Matrix3 lattice_of(const Json& structure) {
  const Json* lattice = find(structure, "lattice_mat");
  if (lattice == nullptr) lattice = find(structure, "lattice");
  if (lattice != nullptr && lattice->is_object()) lattice = find(*lattice, "matrix");
  if (lattice == nullptr) reject("no lattice");
  if (!lattice->is_array() || lattice->size() != 3) reject(fmt::format("lattice {} is not 3 x 3", shown(*lattice)));
  const Matrix3 out{vector3((*lattice)[0], "lattice"), vector3((*lattice)[1], "lattice"),
                    vector3((*lattice)[2], "lattice")};
  if (!spans_volume(out))
    reject(
        fmt::format("lattice {} spans no volume: its vectors must be finite and linearly independent; correct it, or "
                    "remove the structure from the file",
                    shown(*lattice)));
  return out;
}

uint8_t element(const Json& value) {
  if (value.is_string()) {
    const auto found = atomic_number(value.get<std::string>());
    if (found) return *found;
  }
  if (value.is_number_unsigned() && value >= 1 && value <= kElements) return value.get<uint8_t>();
  reject(fmt::format("{} is not a chemical element", shown(value)));
}

Vector3 cartesian(const Vector3& fractional, const Matrix3& lattice) {
  Vector3 out{};
  for (size_t axis = 0; axis < 3; ++axis)
    out[axis] = fractional[0] * lattice[0][axis] + fractional[1] * lattice[1][axis] + fractional[2] * lattice[2][axis];
  return out;
}

// Replaces fractional coordinates by Cartesian ones.
void place_atoms(Crystal& crystal, Ties ties) {
  if (ties == Ties::kExact) {
    crystal.positions = original_cartesian(crystal.positions, crystal.lattice);
    return;
  }
  for (Vector3& position : crystal.positions) position = cartesian(position, crystal.lattice);
}

// Appends the atoms to the crystal, with fractional coordinates.
void add_sites(const Json& sites, Crystal& crystal) {
  for (const Json& site : sites) {
    const Json* species = find(site, "species");
    const Json* fractional = find(site, "abc");
    if (species == nullptr || !species->is_array() || fractional == nullptr) reject("a site has no species or no abc");
    const Json* occupancy = species->size() == 1 ? find((*species)[0], "occu") : nullptr;
    if (species->size() != 1 || (occupancy != nullptr && *occupancy != 1))
      reject(fmt::format("a site with {} is disordered: every site must have one element", shown(*species)));
    const Json* symbol = find((*species)[0], "element");
    crystal.numbers.push_back(element(symbol == nullptr ? Json() : *symbol));
    crystal.positions.push_back(vector3(*fractional, "abc"));
  }
}

// Appends the atoms to the crystal. Returns whether the coordinates are fractional.
bool add_atoms(const Json& structure, Crystal& crystal) {
  const Json* species = nullptr;
  for (const char* key : {"species", "elements", "numbers"}) {
    if (species == nullptr) species = find(structure, key);
  }
  if (species == nullptr || !species->is_array()) reject("no list of species, elements or numbers");
  const Json* coordinates = find(structure, "cart_coords");
  bool fractional = false;
  if (coordinates == nullptr) {
    coordinates = find(structure, "frac_coords");
    fractional = true;
  }
  if (coordinates == nullptr) {
    coordinates = find(structure, "coords");
    const Json* is_cartesian = find(structure, "cartesian");
    if (is_cartesian != nullptr && !is_cartesian->is_boolean())
      reject(fmt::format("cartesian: {} is neither true nor false", shown(*is_cartesian)));
    fractional = is_cartesian == nullptr || *is_cartesian == false;
  }
  if (coordinates == nullptr || !coordinates->is_array()) reject("no list of frac_coords, cart_coords or coords");
  if (coordinates->size() != species->size())
    reject(fmt::format("{} atoms, but {} coordinates", species->size(), coordinates->size()));
  for (const Json& one : *species) crystal.numbers.push_back(element(one));
  for (const Json& one : *coordinates) crystal.positions.push_back(vector3(one, "coordinates"));
  return fractional;
}

LabeledCrystal parse_entry(const Json& entry, const CrystalSourceOptions& options) {
  const Json* structure = find(entry, "structure");
  if (structure == nullptr) structure = find(entry, "atoms");
  if (structure == nullptr) structure = &entry;
  if (!structure->is_object()) reject("its structure is not an object");
  LabeledCrystal out;
  out.crystal.lattice = lattice_of(*structure);
  bool fractional = true;
  if (const Json* sites = find(*structure, "sites"); sites != nullptr) {
    add_sites(*sites, out.crystal);
  } else {
    fractional = add_atoms(*structure, out.crystal);
  }
  if (out.crystal.numbers.empty()) reject("no atoms");
  if (fractional) place_atoms(out.crystal, options.ties);
  const Json* label = find(entry, options.target_property.c_str());
  if (label == nullptr) reject(fmt::format("no '{}' (data.target_property)", options.target_property));
  for (const Json& one : label->is_array() ? *label : Json::array({*label})) {
    if (!one.is_number())
      reject(fmt::format("'{}' is {}: a label must be a finite number", options.target_property, shown(one)));
    out.label.push_back(one.get<double>());
  }
  if (const Result<void> good = check_label(out.label, options); !good) reject(good.error().message);
  return out;
}

class StructureList final : public CrystalSource {
 public:
  StructureList(std::filesystem::path path, std::vector<LabeledCrystal> crystals)
      : path_(std::move(path)), crystals_(std::move(crystals)) {}

  int64_t size() const override { return static_cast<int64_t>(crystals_.size()); }
  Result<LabeledCrystal> read(int64_t structure) const override { return crystals_[static_cast<size_t>(structure)]; }
  std::string place(int64_t structure) const override {
    return fmt::format("{} (structure {})", path_.string(), structure);
  }

 private:
  std::filesystem::path path_;
  std::vector<LabeledCrystal> crystals_;
};

// All structures are kept in memory, 32 bytes per atom.
Result<std::unique_ptr<CrystalSource>> open_structure_list(const CrystalSourceOptions& options) {
  const auto bad = [&](const std::string& message) {
    return fail(ExitCode::kDataErr, fmt::format("{}: {}", options.path.string(), message));
  };
  RETURN_IF_ERROR(open_regular_file(options.path).map([](const FileDescriptor&) {}));  // a pipe would block
  std::ifstream in(options.path, std::ios::binary);
  if (!in) return fail_errno(errno, fmt::format("{}: cannot be opened", options.path.string()));
  std::vector<LabeledCrystal> crystals;
  const Result<void> read = read_json_list(in, "structure", [&](const Json& entry) -> Result<void> {
    try {
      if (!entry.is_object()) reject(fmt::format("{} is not an object", shown(entry)));
      crystals.push_back(parse_entry(entry, options));
      return {};
    } catch (const ErrorException& failure) {
      return tl::make_unexpected(failure.error());
    }
  });
  if (!read) return bad(read.error().message);
  if (crystals.empty()) return bad("contains no structure");
  return std::make_unique<StructureList>(options.path, std::move(crystals));
}

}  // namespace

Result<std::unique_ptr<CrystalSource>> open_crystals(const CrystalSourceOptions& options) {
  if (options.path.extension() == ".json") return open_structure_list(options);
  return ExtxyzFile::open(options.path).map([&](ExtxyzFile file) -> std::unique_ptr<CrystalSource> {
    return std::make_unique<ExtxyzCrystals>(std::move(file), options);
  });
}

}  // namespace oarlock::comformer
