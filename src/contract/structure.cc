#include "src/contract/structure.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/contract/view_steps.h"

namespace rekindle::contract {

namespace {

constexpr int kDeepestPart = 200;

bool is_name(const Json& json) { return is_list_of(json, 2) && json[0].is_string() && json[1].is_string(); }

void require(std::size_t& count, const Json& position) {
  count = std::max(count, position.get<std::size_t>() + 1);
}

// Checks a structure on one walk and collects what it refers to.
class StructureWalk {
 public:
  Structure::Needs needs;
  std::vector<Structure::TorchName> torch_names;

  bool is_structure(const Json& json) {
    if (!json.is_object() || !json.contains("with_views")) return is_part(json, 0);
    if (json.size() != 2 || !json.contains("result")) return false;
    const Json& views = json["with_views"];
    if (!is_list(views, [&](const Json& view) { return is_view(view); })) return false;
    views_ = views.size();
    return is_part(json["result"], 0);
  }

 private:
  bool is_view(const Json& view) {
    if (!view.is_object()) return false;
    for (const char* flag : {"detached", "is_view", "one_of_many"}) {
      if (!view.contains(flag) || !view[flag].is_boolean()) return false;
    }
    if (!view.contains("of") || !is_base(view["of"])) return false;
    if (view.contains("steps")) return view.size() == 5 && are_view_steps(view["steps"], needs.numbers);
    return view.size() == 8 && is_place(view);
  }

  bool is_base(const Json& of) {
    if (!of.is_object() || of.size() != 1) return false;
    const std::string& kind = of.begin().key();
    return (kind == "input" || kind == "output") && is_reference(kind, *of.begin());
  }

  static bool is_place(const Json& view) {
    for (const char* sizes : {"size", "stride", "base_stride"}) {
      if (!view.contains(sizes) || !is_list(view[sizes], is_position)) return false;
    }
    return view.contains("offset") && view["offset"].is_number_integer() &&
           view["size"].size() == view["stride"].size();
  }

  bool is_reference(const std::string& kind, const Json& position) {
    if (!is_position(position)) return false;
    if (kind == "view") return position.get<std::size_t>() < views_;
    if (kind == "same") return position.get<std::size_t>() < made_;
    require(kind == "output" ? needs.outputs : kind == "input" ? needs.inputs : needs.numbers, position);
    return true;
  }

  bool is_part(const Json& part, int depth) {
    if (!part.is_object() || part.empty() || part.size() > 2 || depth > kDeepestPart) return false;
    const std::string& kind = part.begin().key();
    const Json& content = *part.begin();
    if (part.size() == 2) return is_of_class(kind, content, *std::next(part.begin()), part, depth);
    if (is_among(kind, {"output", "input", "view", "number", "same"})) return is_reference(kind, content);
    if (kind == "value") return is_scalar(content);
    if (kind == "dtype" || kind == "device") {
      if (content.is_string()) torch_names.push_back({kind, content.get<std::string>()});
      return content.is_string();
    }
    if (kind == "class") return is_name(content);
    if (kind == "shared") {
      const bool is_right = is_part(content, depth + 1);
      ++made_;  // after what it holds
      return is_right;
    }
    if (is_among(kind, {"list", "tuple", "size"})) return are_parts(content, depth);
    return is_among(kind, {"dict", "OrderedDict"}) && are_pairs(content, is_scalar, depth);
  }

  bool is_of_class(const std::string& kind, const Json& name, const Json& items, const Json& part,
                   int depth) {
    if (std::next(part.begin()).key() != "items" || !is_name(name)) return false;
    if (is_among(kind, {"namedtuple", "return_type"})) return are_parts(items, depth);
    made_ += kind == "object";  // before what it holds
    return is_among(kind, {"model_output", "dataclass", "object"}) && are_pairs(items, is_text, depth);
  }

  bool are_parts(const Json& items, int depth) {
    return is_list(items, [&](const Json& item) { return is_part(item, depth + 1); });
  }

  bool are_pairs(const Json& items, bool (*is_key)(const Json&), int depth) {
    return is_list(items, [&](const Json& pair) {
      return is_list_of(pair, 2) && is_key(pair[0]) && is_part(pair[1], depth + 1);
    });
  }

  std::size_t views_ = 0, made_ = 0;
};

}  // namespace

std::optional<Structure> Structure::of(Json described) {
  StructureWalk walk;
  if (!walk.is_structure(described)) return std::nullopt;
  Structure made;
  made.described_ = std::move(described);
  made.needs_ = walk.needs;
  made.torch_names_ = std::move(walk.torch_names);
  return made;
}

}  // namespace rekindle::contract
