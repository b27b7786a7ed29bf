// The Kubernetes objects of YAML documents.
#pragma once

#include <string>
#include <vector>

#include "yaml/reader.h"

namespace oarlock::yaml {

// A Kubernetes object of a file.
struct ListedObject {
  Node node;
  std::string path;  // of the object in its document, such as "items[0]"; empty: it is the document
};

// Returns the documents with each List and each TrainingJobList, such as `kubectl get -o yaml` prints, replaced by its
// items. A list whose items are not a sequence has no objects.
std::vector<ListedObject> list_objects(const std::vector<Node>& documents);

}  // namespace oarlock::yaml
