// The objects that an informer keeps.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kube/client/request.h"

namespace oarlock::kube {

// Key and resource version of an object in one allocation. Namespace, name and version must not contain NUL characters.
class RecordKey {
 public:
  RecordKey(const ObjectKey& key, std::string_view version) {
    const size_t size = key.namespace_name.size() + key.name.size() + version.size() + 3;
    text_ = std::make_unique_for_overwrite<char[]>(size);
    char* at = text_.get();
    for (const std::string_view part : {std::string_view(key.namespace_name), std::string_view(key.name), version}) {
      at = std::copy(part.begin(), part.end(), at);
      *at++ = '\0';
    }
  }

  std::string_view namespace_name() const { return text_.get(); }
  std::string_view name() const { return namespace_name().data() + namespace_name().size() + 1; }
  std::string_view version() const { return name().data() + name().size() + 1; }
  ObjectKey key() const { return {std::string(namespace_name()), std::string(name())}; }

 private:
  std::unique_ptr<char[]> text_;
};

// Indexed cache of the current objects of a selection, projected to small structs. In addition to its struct, an object
// takes about 140 bytes: its key and version in one allocation, a node of the set, and an entry of the index.
//
// Thread-safe. Objects are immutable and shared, so a reader holds no lock while it uses them. The resource version of
// an object identifies unchanged objects without comparing them. An object may have an index key, by which find()
// returns all objects with that key.
template <typename T>
class Store {
 public:
  struct Record {
    RecordKey key;
    T object;
    size_t bytes;  // of memory, approximately
  };
  using RecordPtr = std::shared_ptr<const Record>;

  // Records are looked up by ObjectKey in a set of records.
  struct Hash {
    using is_transparent = void;
    // noexcept, so that the nodes of the set do not also hold the hash: 16 bytes for each object.
    size_t operator()(const RecordPtr& record) const noexcept {
      return hash_key(record->key.namespace_name(), record->key.name());
    }
    size_t operator()(const ObjectKey& key) const noexcept { return hash_key(key.namespace_name, key.name); }
  };
  struct SameKey {
    using is_transparent = void;
    bool operator()(const RecordPtr& a, const RecordPtr& b) const {
      return a->key.name() == b->key.name() && a->key.namespace_name() == b->key.namespace_name();
    }
    bool operator()(const ObjectKey& a, const RecordPtr& b) const {
      return a.name == b->key.name() && a.namespace_name == b->key.namespace_name();
    }
    bool operator()(const RecordPtr& a, const ObjectKey& b) const { return (*this)(b, a); }
  };
  using Records = std::unordered_set<RecordPtr, Hash, SameKey>;
  // Returns the index key of an object; empty if it is not indexed.
  using IndexOf = std::function<std::string(const ObjectKey&, const T&)>;

  struct Change {
    RecordPtr before;  // null: added
    RecordPtr after;   // null: deleted
  };

  explicit Store(IndexOf index_of) : index_of_(std::move(index_of)) {}

  // `object_bytes`: memory that the object takes.
  static RecordPtr make_record(const ObjectKey& key, std::string_view version, T object,
                               size_t object_bytes = sizeof(T)) {
    const size_t bytes = kRecordBytes + key.namespace_name.size() + key.name.size() + version.size() + object_bytes;
    return std::make_shared<const Record>(Record{RecordKey(key, version), std::move(object), bytes});
  }
  // Shares the record's ownership.
  static std::shared_ptr<const T> object_of(const RecordPtr& record) {
    return record == nullptr ? nullptr : std::shared_ptr<const T>(record, &record->object);
  }

  RecordPtr record(const ObjectKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto it = records_.find(key);
    return it == records_.end() ? nullptr : *it;
  }
  std::shared_ptr<const T> get(const ObjectKey& key) const { return object_of(record(key)); }

  std::vector<std::shared_ptr<const T>> find(const std::string& index) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const T>> out;
    const auto it = index_.find(index);
    if (it == index_.end()) return out;
    for (const RecordPtr& one : it->second) out.push_back(object_of(one));
    return out;
  }

  std::vector<std::shared_ptr<const T>> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const T>> out;
    out.reserve(records_.size());
    for (const RecordPtr& one : records_) out.push_back(object_of(one));
    return out;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return records_.size();
  }

  Records records() const {
    const std::lock_guard lock(mutex_);
    return records_;
  }

  // Memory of all records, approximately.
  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

  // Both return the previous record of the key; null if there was none.
  RecordPtr put(RecordPtr record) {
    const std::lock_guard lock(mutex_);
    const auto it = records_.find(record);
    RecordPtr before = it == records_.end() ? nullptr : extract(it);
    add_to_index(record);
    bytes_ += record->bytes;
    records_.insert(std::move(record));
    return before;
  }
  RecordPtr erase(const ObjectKey& key) {
    const std::lock_guard lock(mutex_);
    const auto it = records_.find(key);
    return it == records_.end() ? nullptr : extract(it);
  }

  // Returns the changes that replace(records) would make. A record that is in both states is not a change.
  std::vector<Change> changes_to(const Records& records) const {
    const std::lock_guard lock(mutex_);
    std::vector<Change> changes;
    for (const RecordPtr& now : records) {
      const auto it = records_.find(now);
      RecordPtr before = it == records_.end() ? nullptr : *it;
      if (before != now) changes.push_back({std::move(before), now});
    }
    for (const RecordPtr& before : records_) {
      if (!records.contains(before)) changes.push_back({before, nullptr});
    }
    return changes;
  }

  // Replaces all records atomically. REQUIRES: `changes` is changes_to(records), and the store was not written since.
  void replace(Records records, const std::vector<Change>& changes) {
    const std::lock_guard lock(mutex_);
    for (const Change& change : changes) {
      if (change.before != nullptr) {
        remove_from_index(change.before);
        bytes_ -= change.before->bytes;
      }
      if (change.after != nullptr) {
        add_to_index(change.after);
        bytes_ += change.after->bytes;
      }
    }
    if (records_.empty()) {
      records_.swap(records);
      return;
    }
    // Updates records_ in place instead of swapping: the nodes of `records` were allocated last, so freeing them
    // releases whole pages, whereas the nodes of records_ are spread over the pages of the objects.
    for (const Change& change : changes) {
      if (change.before != nullptr) records_.erase(change.before);
      if (change.after != nullptr) records_.insert(change.after);
    }
  }

 private:
  static constexpr size_t kRecordBytes = 140;

  void add_to_index(const RecordPtr& record) {
    const std::string index = index_of_(record->key.key(), record->object);
    if (index.empty()) return;
    std::vector<RecordPtr>& group = index_[index];
    if (group.size() < 8) group.reserve(group.size() + 1);  // most groups are small, so they grow by one
    group.push_back(record);
  }
  void remove_from_index(const RecordPtr& record) {
    const auto group = index_.find(index_of_(record->key.key(), record->object));
    if (group == index_.end()) return;
    std::erase(group->second, record);
    if (group->second.empty()) index_.erase(group);
  }
  RecordPtr extract(typename Records::iterator it) {
    RecordPtr record = *it;
    records_.erase(it);
    bytes_ -= record->bytes;
    remove_from_index(record);
    return record;
  }

  const IndexOf index_of_;
  mutable std::mutex mutex_;
  Records records_;
  size_t bytes_ = 0;
  std::unordered_map<std::string, std::vector<RecordPtr>> index_;
};

}  // namespace oarlock::kube
