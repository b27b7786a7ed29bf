// The present state of a selection as small structs, and how to find them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/kube/object_key.h"

namespace oarlock::kube {

// Thread-safe. Objects are immutable and shared, so a reader needs no lock while it reads. Each has a version, by which
// an unchanged object is known without being looked at, and may have an index key under which a group is found at once.
template <typename T>
class Store {
 public:
  struct Entry {
    std::shared_ptr<const T> object;
    std::string version;
  };
  using Entries = std::unordered_map<ObjectKey, Entry>;
  using IndexOf = std::function<std::string(const ObjectKey&, const T&)>;  // empty: not indexed

  explicit Store(IndexOf index_of) : index_of_(std::move(index_of)) {}

  std::shared_ptr<const T> get(const ObjectKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    return it == entries_.end() ? nullptr : it->second.object;
  }

  // The entry, so that a caller may reuse an object whose version is the same.
  Entry entry(const ObjectKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    return it == entries_.end() ? Entry{} : it->second;
  }

  std::vector<std::shared_ptr<const T>> find(const std::string& index) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const T>> out;
    const auto it = index_.find(index);
    if (it == index_.end()) return out;
    for (const ObjectKey& key : it->second) out.push_back(entries_.at(key).object);
    return out;
  }

  std::vector<ObjectKey> keys() const {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectKey> out;
    for (const auto& [key, entry] : entries_) out.push_back(key);
    return out;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

  // Each returns what was there before.
  std::shared_ptr<const T> put(const ObjectKey& key, Entry entry) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const T> before = take_out(key);
    enter(key, *entry.object);
    entries_.insert_or_assign(key, std::move(entry));
    return before;
  }
  std::shared_ptr<const T> erase(const ObjectKey& key) {
    const std::lock_guard lock(mutex_);
    return take_out(key);
  }
  Entries replace(Entries entries) {
    const std::lock_guard lock(mutex_);
    entries_.swap(entries);
    index_.clear();
    for (const auto& [key, entry] : entries_) enter(key, *entry.object);
    return entries;
  }

 private:
  void enter(const ObjectKey& key, const T& object) {
    const std::string index = index_of_(key, object);
    if (!index.empty()) index_[index].push_back(key);
  }
  std::shared_ptr<const T> take_out(const ObjectKey& key) {
    const auto it = entries_.find(key);
    if (it == entries_.end()) return nullptr;
    std::shared_ptr<const T> object = std::move(it->second.object);
    entries_.erase(it);
    if (const auto group = index_.find(index_of_(key, *object)); group != index_.end()) {
      std::erase(group->second, key);
      if (group->second.empty()) index_.erase(group);
    }
    return object;
  }

  const IndexOf index_of_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, std::vector<ObjectKey>> index_;
};

}  // namespace oarlock::kube
