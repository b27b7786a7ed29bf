#include "api/template_merge.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list) out.push_back(text_at(item, "name"));
  return out;
}

// Appends the items of which `out` has none with the same name.
void append_others(Json items, Json& out) {
  const std::vector<std::string> given = names_of(out);
  for (Json& item : items) {
    if (std::ranges::find(given, text_at(item, "name")) == given.end()) out.push_back(std::move(item));
  }
}

Json* find_named(Json& list, const Json& item) {
  const std::string name = text_at(item, "name");
  const auto found = std::ranges::find_if(list, [&](const Json& other) { return text_at(other, "name") == name; });
  return name.empty() || found == list.end() ? nullptr : &*found;
}

// The items of the patch come first, so that their indices are those of the template.
Json merge_containers(Json base, Json patch, PatchNull nulls) {
  for (Json& item : patch) {
    const Json* same = find_named(base, item);
    if (same == nullptr) continue;
    Json merged = *same;
    merge_template(merged, std::move(item), nulls);
    item = std::move(merged);
  }
  append_others(std::move(base), patch);
  return patch;
}

// Init containers run in their order.
Json merge_init_containers(Json base, Json patch, PatchNull nulls) {
  for (const Json& item : patch) {
    if (Json* same = find_named(base, item)) merge_template(*same, item, nulls);
  }
  append_others(std::move(patch), base);
  return base;
}

// An item of the patch replaces the one of the same name: a volume has one source, and a variable one value.
Json merge_named(Json base, Json patch) {
  append_others(std::move(base), patch);
  return patch;
}

// A variable can refer to those before it.
Json merge_variables(Json base, Json patch) {
  for (const Json& item : patch) {
    if (Json* same = find_named(base, item)) *same = item;
  }
  append_others(std::move(patch), base);
  return base;
}

Json merge_mounts(Json base, Json patch) {
  const Json given = patch;
  for (Json& item : base) {
    const bool is_replaced = std::ranges::any_of(given, [&](const Json& mount) {
      return text_at(mount, "name") == text_at(item, "name") ||
             without_trailing_slash(text_at(mount, "mountPath")) == without_trailing_slash(text_at(item, "mountPath"));
    });
    if (!is_replaced) patch.push_back(std::move(item));
  }
  return patch;
}

Json merge_both(Json base, Json patch) {
  for (Json& item : patch) {
    if (std::ranges::find(base, item) == base.end()) base.push_back(std::move(item));
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
