// The types of the attributes that known ops read, so that graph::Node's
// typed accessors cannot meet another type.
#pragma once

#include <optional>
#include <string_view>

#include "src/graph/graph.h"

namespace rekindle::graph {

// In the order of Attribute's alternatives.
enum class AttributeKind { kInt, kFloat, kString, kInts, kFloats, kStrings, kConstant, kGraph };

inline AttributeKind kind_of(const Attribute& attribute) {
  return static_cast<AttributeKind>(attribute.index());
}
// "an int", "a list of floats", ... for messages.
const char* attribute_kind_name(AttributeKind kind);
// The kind an attribute of that name has on `node`'s op; nullopt when no known op reads one of that name.
std::optional<AttributeKind> expected_kind(const Node& node, std::string_view attribute);

}  // namespace rekindle::graph
