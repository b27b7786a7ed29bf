#include "operator/kube/client/splitter.h"

#include <algorithm>

namespace oarlock::kube {

bool LineSplitter::feed(std::string_view bytes, const TextHandler& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (skipped_bytes_ > 0 || partial_.size() + piece.size() > limit_) {
      if (skipped_bytes_ == 0) ++skipped_;
      skipped_bytes_ += partial_.size() + piece.size();
      std::string().swap(partial_);
      is_endless_ = skipped_bytes_ > limit_ * kSkipFactor;
      if (is_endless_) return false;
      if (end == std::string_view::npos) return true;
      skipped_bytes_ = 0;
      bytes.remove_prefix(end + 1);
      continue;
    }
    if (end == std::string_view::npos) {
      partial_ += piece;
      return true;
    }
    bytes.remove_prefix(end + 1);
    if (partial_.empty()) {
      if (!piece.empty() && !on_line(piece)) return false;
    } else {
      partial_ += piece;
      const bool more = on_line(partial_);
      partial_.clear();
      if (!more) return false;
    }
  }
  return true;
}

bool ItemSplitter::add_to_item(std::string_view piece) {
  if (skipped_bytes_ == 0 && item_.size() + piece.size() <= limit_) {
    item_ += piece;
    return true;
  }
  if (skipped_bytes_ == 0) ++skipped_;
  skipped_bytes_ += item_.size() + piece.size();
  std::string().swap(item_);
  is_endless_ = skipped_bytes_ > limit_ * kSkipFactor;
  return !is_endless_;
}

inline void ItemSplitter::scan_string(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
  }
}

void ItemSplitter::scan_envelope(char c) {
  if (in_string_) {
    if (depth_ == 1 && (escaped_ || c != '"')) last_key_ += c;
    scan_string(c);
  } else if (c == '"') {
    in_string_ = true;
    if (depth_ == 1) last_key_.clear();
  } else if (c == '{' || c == '[') {
    in_items_ = c == '[' && depth_ == 1 && last_key_ == "items";
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
    finished_ = depth_ == 0;
  } else if (c == ',' && depth_ == 1) {
    last_key_.clear();
  }
  envelope_ += c;
}

bool ItemSplitter::feed(std::string_view bytes, const TextHandler& on_item) {
  size_t begin = 0;  // of the current item's text within these bytes
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (!in_items_) {
      scan_envelope(c);
      begin = i + 1;
      if (envelope_.size() > limit_) {
        is_endless_ = true;
        return false;
      }
      continue;
    }
    if (in_string_) {
      scan_string(c);
      continue;
    }
    const bool between = depth_ == 2 && item_.empty() && skipped_bytes_ == 0;
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      if (between && begin <= i) begin = i;  // drops commas and spaces between items
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
      if (depth_ == 1) {  // the end of the array
        in_items_ = false;
        last_key_.clear();
        envelope_ += c;
        begin = i + 1;
      } else if (depth_ == 2) {
        const std::string_view piece = bytes.substr(begin, i + 1 - begin);
        begin = i + 1;
        if (item_.empty() && skipped_bytes_ == 0 && piece.size() <= limit_) {
          if (!on_item(piece)) return false;
          continue;
        }
        if (!add_to_item(piece)) return false;
        const bool more = skipped_bytes_ > 0 || on_item(item_);
        item_.clear();
        skipped_bytes_ = 0;
        if (!more) return false;
      }
    }
  }
  return !in_items_ || depth_ <= 2 || add_to_item(bytes.substr(begin));
}

}  // namespace oarlock::kube
