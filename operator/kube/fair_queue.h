// Keys in the order in which they were added, except that the namespaces take turns: a namespace with thousands of keys
// delays only its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>

#include "operator/kube/object_key.h"

namespace oarlock::kube {

// Not thread-safe. A key is added at most once.
class FairQueue {
 public:
  void push(const ObjectKey& key) {
    std::deque<std::string>& names = names_[key.name_space];
    if (names.empty()) turns_.push_back(key.name_space);
    names.push_back(key.name);
    ++size_;
  }

  // These two REQUIRE: the queue is not empty.
  ObjectKey front() const { return {turns_.front(), names_.at(turns_.front()).front()}; }
  ObjectKey pop() {
    ObjectKey key = front();
    turns_.pop_front();
    const auto names = names_.find(key.name_space);
    names->second.pop_front();
    if (names->second.empty()) {
      names_.erase(names);
    } else {
      turns_.push_back(key.name_space);
    }
    --size_;
    return key;
  }

  // False: the key is not in the queue.
  bool erase(const ObjectKey& key) {
    const auto names = names_.find(key.name_space);
    if (names == names_.end() || std::erase(names->second, key.name) == 0) return false;
    if (names->second.empty()) {
      names_.erase(names);
      std::erase(turns_, key.name_space);
    }
    --size_;
    return true;
  }
  void clear() { *this = {}; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  std::unordered_map<std::string, std::deque<std::string>> names_;  // by namespace; none is empty
  std::deque<std::string> turns_;                                   // the namespaces of names_; the first one is next
  size_t size_ = 0;
};

}  // namespace oarlock::kube
