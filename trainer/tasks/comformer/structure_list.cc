#include "trainer/tasks/comformer/structure_list.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/failure.h"
#include "trainer/data/chemical_elements.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

// Thrown while a structure is taken apart; the caller names the structure.
[[noreturn]] void wrong(std::string message) { throw Failure({ExitCode::kDataErr, std::move(message)}); }

const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

double number(const Json& value, const char* what) {
  if (!value.is_number()) wrong(fmt::format("{}: {} is no number", what, value.dump()));
  const auto out = value.get<double>();
  if (!std::isfinite(out)) wrong(fmt::format("{}: not finite", what));
  return out;
}

Vector3 vector3(const Json& value, const char* what) {
  if (!value.is_array() || value.size() != 3) wrong(fmt::format("{}: {} is no list of 3 numbers", what, value.dump()));
  return {number(value[0], what), number(value[1], what), number(value[2], what)};
}

Matrix3 lattice_of(const Json& structure) {
  const Json* lattice = find(structure, "lattice_mat");
  if (lattice == nullptr) lattice = find(structure, "lattice");
  if (lattice != nullptr && lattice->is_object()) lattice = find(*lattice, "matrix");
  if (lattice == nullptr) wrong("no lattice");
  if (!lattice->is_array() || lattice->size() != 3) wrong(fmt::format("lattice {} is not 3 x 3", lattice->dump()));
  const Matrix3 out{vector3((*lattice)[0], "lattice"), vector3((*lattice)[1], "lattice"),
                    vector3((*lattice)[2], "lattice")};
  if (!spans_volume(out)) wrong(fmt::format("lattice {} spans no volume", lattice->dump()));
  return out;
}

uint8_t element(const Json& value) {
  if (value.is_string()) {
    const auto found = atomic_number(value.get<std::string>());
    if (found) return *found;
  }
  if (value.is_number_unsigned() && value >= 1 && value <= kElements) return value.get<uint8_t>();
  wrong(fmt::format("{} is no chemical element", value.dump()));
}

Vector3 cartesian(const Vector3& fractional, const Matrix3& lattice) {
  Vector3 out{};
  for (size_t axis = 0; axis < 3; ++axis)
    out[axis] = fractional[0] * lattice[0][axis] + fractional[1] * lattice[1][axis] + fractional[2] * lattice[2][axis];
  return out;
}

void add_sites(const Json& sites, Crystal& crystal) {
  for (const Json& site : sites) {
    const Json* species = find(site, "species");
    const Json* fractional = find(site, "abc");
    if (species == nullptr || !species->is_array() || fractional == nullptr) wrong("a site has no species or no abc");
    if (species->size() != 1 || (*species)[0].value("occu", 1.0) != 1)
      wrong(fmt::format("a site with {} is disordered: every site must hold one element", species->dump()));
    crystal.numbers.push_back(element((*species)[0].value("element", Json())));
    crystal.positions.push_back(cartesian(vector3(*fractional, "abc"), crystal.lattice));
  }
}

void add_atoms(const Json& structure, Crystal& crystal) {
  const Json* species = nullptr;
  for (const char* key : {"species", "elements", "numbers"}) {
    if (species == nullptr) species = find(structure, key);
  }
  if (species == nullptr || !species->is_array()) wrong("no list of species, elements or numbers");
  const Json* coordinates = find(structure, "cart_coords");
  bool fractional = false;
  if (coordinates == nullptr) {
    coordinates = find(structure, "frac_coords");
    fractional = true;
  }
  if (coordinates == nullptr) {
    coordinates = find(structure, "coords");
    fractional = !structure.value("cartesian", false);
  }
  if (coordinates == nullptr || !coordinates->is_array()) wrong("no list of frac_coords, cart_coords or coords");
  if (coordinates->size() != species->size())
    wrong(fmt::format("{} atoms, but {} coordinates", species->size(), coordinates->size()));
  for (const Json& one : *species) crystal.numbers.push_back(element(one));
  for (const Json& one : *coordinates) {
    const Vector3 position = vector3(one, "coordinates");
    crystal.positions.push_back(fractional ? cartesian(position, crystal.lattice) : position);
  }
}

LabelledCrystal labelled(const Json& entry, const CrystalSourceOptions& options) {
  const Json* structure = find(entry, "structure");
  if (structure == nullptr) structure = find(entry, "atoms");
  if (structure == nullptr) structure = &entry;
  if (!structure->is_object()) wrong("its structure is no object");
  LabelledCrystal out;
  out.crystal.lattice = lattice_of(*structure);
  if (const Json* sites = find(*structure, "sites"); sites != nullptr) {
    add_sites(*sites, out.crystal);
  } else {
    add_atoms(*structure, out.crystal);
  }
  if (out.crystal.numbers.empty()) wrong("no atoms");
  const Json* label = find(entry, options.target_property.c_str());
  if (label == nullptr) wrong(fmt::format("no '{}' (data.target_property)", options.target_property));
  for (const Json& one : label->is_array() ? *label : Json::array({*label})) {
    if (!one.is_number())
      wrong(fmt::format("'{}' is {}: a label is a finite number", options.target_property, one.dump()));
    out.label.push_back(one.get<double>());
  }
  if (const Result<void> good = check_label(out.label, options); !good) wrong(good.error().message);
  return out;
}

class StructureList final : public CrystalSource {
 public:
  StructureList(std::filesystem::path path, std::vector<LabelledCrystal> crystals)
      : path_(std::move(path)), crystals_(std::move(crystals)) {}

  int64_t size() const override { return static_cast<int64_t>(crystals_.size()); }
  Result<LabelledCrystal> read(int64_t structure) const override { return crystals_[static_cast<size_t>(structure)]; }
  std::string place(int64_t structure) const override {
    return fmt::format("{} (structure {})", path_.string(), structure);
  }

 private:
  std::filesystem::path path_;
  std::vector<LabelledCrystal> crystals_;
};

// The structures one after the other: the parser gives each when it has read it, and forgets it.
std::vector<LabelledCrystal> parse(std::istream& in, const CrystalSourceOptions& options) {
  std::vector<LabelledCrystal> crystals;
  const auto take = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 0 && event == Json::parse_event_t::object_start) wrong("a list [...] of structures is expected");
    if (depth != 1 || (event != Json::parse_event_t::object_end && event != Json::parse_event_t::value)) return true;
    try {
      if (!value.is_object()) wrong(fmt::format("{} is no object", value.dump()));
      crystals.push_back(labelled(value, options));
    } catch (const Failure& failure) {
      wrong(fmt::format("structure {}: {}", crystals.size(), failure.error().message));
    }
    return false;
  };
  const Json rest = Json::parse(in, take);
  if (!rest.is_array()) wrong("a list [...] of structures is expected");
  return crystals;
}

}  // namespace

Result<std::unique_ptr<CrystalSource>> open_structure_list(const CrystalSourceOptions& options) {
  const auto bad = [&](const std::string& message) {
    return fail(ExitCode::kDataErr, fmt::format("{}: {}", options.path.string(), message));
  };
  std::ifstream in(options.path, std::ios::binary);
  if (!in) return fail_errno(errno, fmt::format("{}: cannot be opened", options.path.string()));
  try {
    std::vector<LabelledCrystal> crystals = parse(in, options);
    if (crystals.empty()) return bad("holds no structure");
    return std::make_unique<StructureList>(options.path, std::move(crystals));
  } catch (const Failure& failure) {
    return bad(failure.error().message);
  } catch (const Json::exception& error) {
    return bad(error.what());
  }
}

}  // namespace oarlock
