// The nodes in the operator's cache, with what announces that they are about to be drained or removed.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "operator/shell/cache.h"
#include "operator/shell/projection.h"

namespace oarlock::control {

// A change of a warning enqueues the jobs that have a pod on the node. The pods are searched, because warnings are
// rare.
kube::Informer<CachedNode>::Hooks Cache::node_hooks() {
  kube::Informer<CachedNode>::Hooks out;
  out.project = project_node;
  out.index_of = [](const kube::ObjectKey&, const CachedNode&) { return std::string(); };
  out.bytes_of = [](const CachedNode& node) { return memory_of(node); };
  out.on_change = [this](const kube::ObjectKey& node, const CachedNode* before, const CachedNode* after) {
    const std::string none;
    if ((before == nullptr ? none : before->warning) == (after == nullptr ? none : after->warning)) return;
    std::set<kube::ObjectKey> jobs;
    for (const auto& [namespace_name, informers] : informers_) {
      for (const auto& record : informers.pods->store().records()) {
        if (record->object.object.node_name == node.name && !record->object.job.empty())
          jobs.insert({std::string(record->key.namespace_name()), record->object.job});
      }
    }
    for (const kube::ObjectKey& job : jobs) hooks_.on_change(job, Urgency::kImmediate);
  };
  return out;
}

std::map<std::string, std::string> Cache::node_warnings(const std::vector<Pod>& pods) const {
  std::map<std::string, std::string> out;
  if (nodes_ == nullptr) return out;
  for (const Pod& pod : pods) {
    if (pod.node_name.empty() || out.contains(pod.node_name)) continue;
    const std::shared_ptr<const CachedNode> node = nodes_->store().get({"", pod.node_name});
    if (node != nullptr && !node->warning.empty()) out[pod.node_name] = node->warning;
  }
  return out;
}

}  // namespace oarlock::control
