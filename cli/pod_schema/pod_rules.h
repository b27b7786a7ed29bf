// Rules of the API server for the values of a pod template: required fields, enumerations, names of resources, labels,
// and references within the pod. These are the rules that users violate most often; the API server has more.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "yaml/reader.h"

namespace oarlock::cli {

// Adds a problem for each violation in an object of a type of the pod schema (pod_schema.h), without its nested
// objects. `path` is that of the object. Values of a wrong type are ignored.
void check_rules_of_type(std::string_view type, const yaml::Node& object, const std::string& path,
                         yaml::Problems& problems);

// Adds a problem for each name in a map of quantities that is not the name of a resource: {gpu: 8}.
void check_resource_names(const yaml::Node& quantities, const std::string& path, yaml::Problems& problems);

// Adds a problem for a size of less than 1 MiB, which lacks its unit: memory: 16.
void check_size(const yaml::Node& quantity, const std::string& path, yaml::Problems& problems);

// Adds a problem for a text that is not a valid image reference.
void check_image(const yaml::Node& image, const std::string& path, yaml::Problems& problems);

// Returns whether a text can be the name of a namespace, or with `allows_dots` that of most other objects.
bool is_object_name(const std::string& text, bool allows_dots);

// Returns whether a text can be the key of a label: an optional domain with '/', and a name.
bool is_label_key(const std::string& text);

// Returns whether a text can be the value of a label, as the empty text can.
bool is_label_value(const std::string& text);

// Adds a problem for each key or value of a map that is not valid in a label.
void check_labels(const yaml::Node& labels, const std::string& path, yaml::Problems& problems);

// Adds a problem for each key of a map that is not valid as that of an annotation.
void check_annotations(const yaml::Node& annotations, const std::string& path, yaml::Problems& problems);

// Adds a problem for each volume mount of the containers of a PodSpec whose volume is not in `volumes`.
void check_volume_mounts(const yaml::Node& pod_spec, const std::string& path, const std::set<std::string>& volumes,
                         yaml::Problems& problems);

}  // namespace oarlock::cli
