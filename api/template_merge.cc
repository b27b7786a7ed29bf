#include "api/template_merge.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

// The lists are those of tenants, so each merge takes a time that is about linear in their size.

std::set<std::string> values_of(const Json& list, std::string_view key) {
  std::set<std::string> out;
  for (const Json& item : list) out.insert(text_at(item, key));
  return out;
}

// The places of the items of a list by name. The first of several with the same name is found.
std::map<std::string, size_t> places_of(const Json& list) {
  std::map<std::string, size_t> out;
  for (size_t i = 0; i < list.size(); ++i) {
    if (std::string name = text_at(list[i], "name"); !name.empty()) out.try_emplace(std::move(name), i);
  }
  return out;
}

// Returns the place of the item with the name of this one, once for each name: an item that is repeated is merged once,
// and the API server rejects the others.
std::optional<size_t> take(std::map<std::string, size_t>& places, const Json& item) {
  const auto taken = places.extract(text_at(item, "name"));
  return taken ? std::optional(taken.mapped()) : std::nullopt;
}

// The items of the patch come first, so that their indices are those of the template.
Json merge_containers(Json base, Json patch, PatchNull nulls) {
  std::map<std::string, size_t> places = places_of(base);
  std::vector<bool> is_merged(base.size());
  for (Json& item : patch) {
    const std::optional<size_t> same = take(places, item);
    if (!same) continue;
    merge_template(base[*same], std::move(item), nulls);
    item = std::move(base[*same]);
    is_merged[*same] = true;
  }
  for (size_t i = 0; i < is_merged.size(); ++i) {
    if (!is_merged[i]) patch.push_back(std::move(base[i]));
  }
  return patch;
}

// Init containers run in their order.
Json merge_init_containers(Json base, Json patch, PatchNull nulls) {
  std::map<std::string, size_t> places = places_of(base);
  for (Json& item : patch) {
    if (const std::optional<size_t> same = take(places, item)) {
      merge_template(base[*same], std::move(item), nulls);
    } else {
      base.push_back(std::move(item));
    }
  }
  return base;
}

// An item of the patch replaces the one of the same name: a volume has one source, and a variable one value.
Json merge_named(Json base, Json patch) {
  const std::set<std::string> given = values_of(patch, "name");
  for (Json& item : base) {
    if (!given.contains(text_at(item, "name"))) patch.push_back(std::move(item));
  }
  return patch;
}

// A variable can refer to those before it.
Json merge_variables(Json base, Json patch) {
  const std::map<std::string, size_t> places = places_of(base);
  for (Json& item : patch) {
    const auto same = places.find(text_at(item, "name"));
    if (same != places.end()) {
      base[same->second] = std::move(item);
    } else {
      base.push_back(std::move(item));
    }
  }
  return base;
}

Json merge_mounts(Json base, Json patch) {
  const std::set<std::string> names = values_of(patch, "name");
  std::set<std::string> paths;
  for (const std::string& path : values_of(patch, "mountPath")) paths.insert(without_trailing_slash(path));
  for (Json& item : base) {
    const bool is_replaced =
        names.contains(text_at(item, "name")) || paths.contains(without_trailing_slash(text_at(item, "mountPath")));
    if (!is_replaced) patch.push_back(std::move(item));
  }
  return patch;
}

Json merge_both(Json base, Json patch) {
  std::set<std::string> known;
  for (const Json& item : base) known.insert(dump_json(item));
  for (Json& item : patch) {
    if (known.insert(dump_json(item)).second) base.push_back(std::move(item));
  }
  return base;
}

Json merge_list(const std::string& key, Json base, Json patch, PatchNull nulls) {
  if (key == "containers") return merge_containers(std::move(base), std::move(patch), nulls);
  if (key == "initContainers") return merge_init_containers(std::move(base), std::move(patch), nulls);
  if (key == "volumes" || key == "imagePullSecrets") return merge_named(std::move(base), std::move(patch));
  if (key == "env") return merge_variables(std::move(base), std::move(patch));
  if (key == "volumeMounts") return merge_mounts(std::move(base), std::move(patch));
  if (key == "tolerations" || key == "envFrom") return merge_both(std::move(base), std::move(patch));
  return patch;
}

}  // namespace

void merge_template(Json& base, Json patch, PatchNull nulls) {
  for (const auto& [key, value] : patch.items()) {  // `value` is a reference to the item
    const auto known = base.find(key);
    if (known == base.end()) {
      base[key] = std::move(value);
    } else if (value.is_null() && nulls == PatchNull::kErase) {
      base.erase(known);
    } else if (known->is_object() && value.is_object()) {
      merge_template(*known, std::move(value), nulls);
    } else if (known->is_array() && value.is_array()) {
      *known = merge_list(key, std::move(*known), std::move(value), nulls);
    } else {
      *known = std::move(value);
    }
  }
}

}  // namespace oarlock::api
