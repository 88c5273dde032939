#include "export_cache/misses/differences.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace rekindle {
namespace {

constexpr std::size_t kDigestDigits = 32;
constexpr std::size_t kShownDigits = 8;
constexpr std::size_t kMaxDepth = 12;    // of parts within parts; bounds what a hostile tree can ask for
constexpr std::size_t kMaxFound = 4096;  // so does this
constexpr std::size_t kMaxMoved = 1024;  // units of two sequences that are aligned exactly

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// Position of the last run of exactly 32 hexadecimal digits at or before `from`, or npos.
std::size_t last_digest(std::string_view text, std::size_t from = std::string_view::npos) {
  std::size_t end = std::min(from, text.size());
  while (end > 0) {
    if (!is_hex(text[end - 1])) {
      --end;
      continue;
    }
    std::size_t begin = end;
    while (begin > 0 && is_hex(text[begin - 1])) --begin;
    if (end - begin == kDigestDigits) return begin;
    end = begin;
  }
  return std::string_view::npos;
}

// The text with every digest cut to `digits`.
std::string with_digests(std::string_view text, std::size_t digits) {
  std::string cut(text);
  for (std::size_t at = last_digest(cut); at != std::string::npos; at = last_digest(cut, at)) {
    cut.erase(at + digits, kDigestDigits - digits);
  }
  return cut;
}

bool marked(std::string_view text, char mark) { return !text.empty() && text.front() == mark; }

std::string shown(std::string_view text) {
  std::string result = with_digests(text, kShownDigits);
  if (marked(result, kListMark)) result.erase(0, 1);
  if (marked(result, kSequenceMark)) return std::to_string((result.size() - 1) / 2);
  std::size_t at = 0;
  while ((at = result.find(kListMark, at)) != std::string::npos) result.replace(at, 1, ", ");
  return result;
}

std::vector<std::string_view> items(std::string_view list) {
  std::vector<std::string_view> found;
  list.remove_prefix(1);
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(kListMark), list.size());
    found.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return found;
}

// What `from` has more often than `other`, in its order.
std::vector<std::string_view> surplus(const std::vector<std::string_view>& from,
                                      const std::vector<std::string_view>& other) {
  std::map<std::string_view, std::size_t> left;
  for (const std::string_view item : other) ++left[item];
  std::vector<std::string_view> more;
  for (const std::string_view item : from) {
    std::size_t& count = left[item];
    count > 0 ? static_cast<void>(--count) : more.push_back(item);
  }
  return more;
}

// Units of the longer sequence that an optimal alignment leaves over or replaces.
std::size_t moved_units(std::u16string_view a, std::u16string_view b) {
  while (!a.empty() && !b.empty() && a.front() == b.front()) a.remove_prefix(1), b.remove_prefix(1);
  while (!a.empty() && !b.empty() && a.back() == b.back()) a.remove_suffix(1), b.remove_suffix(1);
  if (std::max(a.size(), b.size()) > kMaxMoved) return std::max(a.size(), b.size());
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::u16string units(std::string_view sequence) {
  std::u16string result;
  for (std::size_t i = 1; i + 1 < sequence.size(); i += 2) {
    const auto high = static_cast<unsigned char>(sequence[i]);
    result.push_back(static_cast<char16_t>(high << 8 | static_cast<unsigned char>(sequence[i + 1])));
  }
  return result;
}

class Differ {
 public:
  Differ(const LeafTree& before, const LeafTree& after) : before_(before), after_(after) {}

  std::vector<Difference> run() {
    compare_leaves("", before_.leaves, after_.leaves, 0);
    if (found_.empty()) compare_order();
    const auto is_version = [](const Difference& d) { return d.path.starts_with("version."); };
    std::stable_partition(found_.begin(), found_.end(), is_version);
    return std::move(found_);
  }

 private:
  void add(std::string path, std::string before, std::string after) {
    ++reported_;
    if (found_.size() < kMaxFound) found_.push_back({std::move(path), std::move(before), std::move(after)});
  }

  void compare_order() {
    const auto [old_leaf, new_leaf] = std::ranges::mismatch(before_.leaves, after_.leaves);
    if (old_leaf != before_.leaves.end()) add("order of the fields", old_leaf->path, new_leaf->path);
  }

  void compare_leaves(const std::string& path, const Leaves& before, const Leaves& after, std::size_t depth) {
    std::unordered_map<std::string_view, std::string_view> now;
    for (const Leaf& leaf : after) now.emplace(leaf.path, leaf.text);
    std::set<std::string_view> met;
    for (const Leaf& leaf : before) {
      met.insert(leaf.path);
      const auto found = now.find(leaf.path);
      if (found == now.end()) {
        once(path, leaf.path, leaf.text, {}, depth);
      } else if (found->second != leaf.text) {
        once(path, leaf.path, leaf.text, found->second, depth);
      }
    }
    for (const Leaf& leaf : after) {
      if (!met.contains(leaf.path)) once(path, leaf.path, {}, leaf.text, depth);
    }
  }

  // Leaves whose last names and texts differ alike are one difference in many places.
  void once(const std::string& parent, const std::string& name, std::string_view before,
            std::string_view after, std::size_t depth) {
    const std::size_t end = name.find_last_of(".:");
    const std::string_view last = std::string_view(name).substr(end == std::string::npos ? 0 : end + 1);
    const auto [known, fresh] = met_.try_emplace({last, before, after});
    if (!fresh) {
      ++reported_;
      for (std::size_t i = known->second.first; i < known->second.second; ++i) ++found_[i].places;
      return;
    }
    const std::size_t first = found_.size();
    compare_texts(parent + name, before, after, depth);
    met_[{last, before, after}] = {first, found_.size()};
  }

  void compare_texts(const std::string& path, std::string_view before, std::string_view after,
                     std::size_t depth) {
    if (before.data() == nullptr) return add(path, kAbsent, shown(after));
    if (after.data() == nullptr) return add(path, shown(before), kAbsent);
    if (marked(before, kListMark) && marked(after, kListMark)) return compare_lists(path, before, after);
    if (marked(before, kSequenceMark) && marked(after, kSequenceMark)) {
      return compare_sequences(path, before, after);
    }
    const std::size_t reported = reported_;
    if (depth < kMaxDepth && with_digests(before, 0) == with_digests(after, 0)) {
      const Leaves* old_parts = parts_of(before_, before);
      const Leaves* new_parts = parts_of(after_, after);
      if (old_parts && new_parts) compare_leaves(path, *old_parts, *new_parts, depth + 1);
    }
    if (reported_ == reported) add(path, shown(before), shown(after));
  }

  static const Leaves* parts_of(const LeafTree& tree, std::string_view text) {
    for (std::size_t at = last_digest(text); at != std::string_view::npos; at = last_digest(text, at)) {
      const auto found = tree.parts.find(text.substr(at, kDigestDigits));
      if (found != tree.parts.end()) return &found->second;
    }
    return nullptr;
  }

  void compare_lists(const std::string& path, std::string_view before, std::string_view after) {
    const auto old_items = items(before), new_items = items(after);
    const auto gone = surplus(old_items, new_items), come = surplus(new_items, old_items);
    if (gone.empty() && come.empty()) return add(path, shown(before), shown(after));
    for (std::size_t i = 0; i < std::max(gone.size(), come.size()); ++i) {
      add(path, i < gone.size() ? shown(gone[i]) : kAbsent, i < come.size() ? shown(come[i]) : kAbsent);
    }
  }

  void compare_sequences(const std::string& path, std::string_view before, std::string_view after) {
    const std::u16string a = units(before), b = units(after);
    add(path, std::to_string(a.size()),
        std::to_string(b.size()) + ", " + std::to_string(moved_units(a, b)) + " differ");
  }

  const LeafTree& before_;
  const LeafTree& after_;
  std::vector<Difference> found_;
  std::size_t reported_ = 0;  // counts repeated ones as well
  // (last name, before, after) -> the differences that it led to, as a range of found_
  std::map<std::array<std::string_view, 3>, std::pair<std::size_t, std::size_t>> met_;
};

struct Group {
  std::string_view name;
  double weight;
};
constexpr Group kGroups[] = {{"model", 8},  {"input", 4},   {"ambient", 2},
                             {"option", 2}, {"patched", 1}, {"version", 1}};

std::string_view group_of(std::string_view path) { return path.substr(0, path.find_first_of(".[ ")); }

}  // namespace

bool is_observation(std::string_view path) {
  return std::ranges::none_of(kGroups, [&](const Group& group) { return group.name == group_of(path); });
}

std::vector<Difference> differences(const LeafTree& before, const LeafTree& after) {
  return Differ(before, after).run();
}

Similarity similarity(const LeafTree& a, const LeafTree& b) {
  std::unordered_map<std::string_view, std::string_view> left;
  std::map<std::string_view, std::pair<std::uint64_t, std::uint64_t>> counts;  // equal, total
  for (const Leaf& leaf : a.leaves) {
    if (is_observation(leaf.path)) continue;
    left.emplace(leaf.path, leaf.text);
    ++counts[group_of(leaf.path)].second;
  }
  for (const Leaf& leaf : b.leaves) {
    if (is_observation(leaf.path)) continue;
    const auto found = left.find(leaf.path);
    auto& [equal, total] = counts[group_of(leaf.path)];
    if (found == left.end()) ++total;
    if (found != left.end() && found->second == leaf.text) ++equal;
  }
  Similarity result;
  double weights = 0;
  for (const Group& group : kGroups) {
    const auto found = counts.find(group.name);
    if (found == counts.end()) continue;
    const auto [equal, total] = found->second;
    result.equal += equal;
    result.total += total;
    weights += group.weight;
    result.score += group.weight * static_cast<double>(equal) / static_cast<double>(total);
  }
  if (weights > 0) result.score /= weights;
  return result;
}

}  // namespace rekindle
