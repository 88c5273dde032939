// Contract: how the tensors of a call, the inputs and outputs of an entry's graph, and the result correspond.
//
// It is an entry's section "contract": one JSON object with a key for each field of Contract, and each struct
// below as its comment says. An entry's content is not trusted. What `parse` returns can be used without
// further care once `check_fit` has held it against the graph and the call.
//
// Positions count from 0. "Inputs" are the call's tensors in flattening order, then the tensors of `state`.
// Values are plain data: they may be copied and read from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/result.h"
#include "src/contract/json.h"
#include "src/contract/structure.h"

namespace rekindle::contract {

// Numbers the format. Every key has it as a field, so that no other version is ever read.
constexpr int kVersion = 31;

using Positions = std::vector<std::size_t>;

// [dimension*], and at the end [stride*] of a tensor that is not contiguous.
struct ArgumentSizes {
  std::vector<std::int64_t> dims;                    // from 0 on
  std::optional<std::vector<std::int64_t>> strides;  // in elements, from 0 on
  bool operator==(const ArgumentSizes&) const = default;
};

// [where, what, answer]: what a forward asked about sizes or data.
struct Question {
  std::string where;        // "file.py:12 in forward"
  std::string what;         // it asked
  std::int64_t answer = 0;  // for which the graph is right; of a truth 0 or 1
  bool operator==(const Question&) const = default;
};

// [places, why]: dimensions that are no symbol.
struct FixedSize {
  std::string places;  // "argument 0 dim 1, argument 1 dim 0", or "all"
  std::string why;     // for people
  bool operator==(const FixedSize&) const = default;
};

// Tells a hit what the export found out about sizes.
struct CallSizes {
  // The call's tensors had these sizes at the export: at them no question needs to be asked.
  std::vector<ArgumentSizes> sizes;
  // Section "guards" answers these questions first, at the sizes of a call.
  std::vector<Question> guards;
  // The result has these numbers at `sizes`, on which they depend; section "guards" answers them last.
  std::vector<std::int64_t> numbers;
  // These dimensions were found to be no symbols, though they were to be.
  std::vector<FixedSize> fixed;
  bool operator==(const CallSizes&) const = default;
};

// [kind, numbers]: how a tensor lies in memory; see session/plan/result_layout.h.
struct Layout {
  std::string kind;                   // "any", "as computed", "order" or "strides"
  std::vector<std::int64_t> numbers;  // what the kind is about, from 0 on
  bool operator==(const Layout&) const = default;
};

// [results, inputs]: backwards of which one frees what the others need; see session/plan/saved_groups.h.
struct SavedGroup {
  Positions results;  // among those with a cotangent
  Positions inputs;   // of the graph
  bool operator==(const SavedGroup&) const = default;
};

// [tensor, results, inputs]: a tensor that somebody else may write to and that nodes of eager's backward
// read, where they lie between these results and inputs, as in SavedGroup.
struct SavedTensor {
  // Counts the graph's inputs, its outputs, then the contract's saved_constants. In saved_writes it is a
  // place in `writes`.
  std::size_t tensor = 0;
  Positions results, inputs;
  auto operator<=>(const SavedTensor&) const = default;
};

// A size, or [input, dimension] of a node that has the same.
using SizeSource = std::variant<std::int64_t, std::pair<std::size_t, std::size_t>>;

// [dtype, [source*]]: of a tensor that a Function returns.
struct TensorSizes {
  std::string dtype;  // as torch names it: "float32"
  std::vector<SizeSource> dims;
  bool operator==(const TensorSizes&) const = default;
};

// One call of a custom autograd Function, with the names of its fields as keys; the graph's nodes name it by
// its position. The grammar of values and paths: call.h.
struct FunctionCall {
  // Path to the Function.
  Json function;
  // Values.
  std::vector<Json> arguments;
  // For each of the node's inputs the position of the argument that it is; null inside of one. Only arguments
  // of their own have gradients.
  std::vector<std::optional<std::size_t>> tensors;
  // The tensors among what the Function returns stand at these places.
  Positions results;
  // Values: the rest of what it returns, which is the same whenever it runs.
  std::vector<Json> others;
  // Inputs of the node that it writes in place.
  Positions dirty;
  // Of its results at any sizes; null where they do not follow from those of the inputs.
  std::optional<std::vector<TensorSizes>> sizes;
  bool operator==(const FunctionCall&) const = default;
};

// [module, name]: an attribute that a forward sets.
struct SetAttribute {
  std::string module;  // its name in the module's tree, "" for the module itself
  std::string name;
  auto operator<=>(const SetAttribute&) const = default;
};

struct Contract {
  // Describes what the module returns. Where the forward sets attributes, it describes a tuple instead: what
  // the module returns, then the value that each attribute gets.
  Structure structure;
  // The attributes that a run sets, in the order of that tuple; none is there twice.
  std::vector<SetAttribute> attributes;
  // For each input of the graph the input that it is; those that nothing reads are left out.
  Positions used;
  // Names of parameters and buffers in the module, none twice.
  std::vector<std::string> state;
  // Whether gradients are recorded.
  bool grad = false;
  // Inputs whose new contents are the graph's last outputs.
  Positions writes;
  // In the order in which nodes number them.
  std::vector<FunctionCall> functions;
  // For each result that requires a gradient a guess whether it gets one; the session corrects a wrong one.
  std::vector<bool> expected_cotangents;
  CallSizes shapes;
  // How eager's results lie: not what is written to inputs, nor what nobody gets.
  std::vector<Layout> output_layouts;
  // How eager's gradient of each input of the graph lies.
  std::vector<Layout> gradient_layouts;
  // Inputs of the graph, as a backward of all results reaches them.
  Positions gradient_order;
  // Null where eager's graph does not tell.
  std::optional<std::vector<SavedGroup>> saved_groups;
  // For each cotangent those whose results lie on its way (results/saved_groups.py); empty where none does.
  std::vector<Positions> inner_results;
  // Positions in `writes` of tensors that eager's operators write without counting it as a version: the
  // running statistics of a batch norm.
  Positions silent_writes;
  // Eager's backward reads these tensors after the forward has written them, and others may write to them.
  std::vector<SavedTensor> saved_writes;
  // Eager's backward reads these inputs, results and saved_constants, and others may write to them.
  std::vector<SavedTensor> saved_tensors;
  // Inputs of the graph that eager saves as they are given, not as a view or a copy; see SessionOptions.
  Positions saved_as_given, saved_both_ways;
  // Names of plain tensors of the module, whose numbers are in the graph, that eager's backward reads; see
  // graphs/guard_inputs.py.
  std::vector<std::string> saved_constants;
  // Questions about data, answered by the output before those of `writes`, if there are any.
  std::vector<Question> data_guards;
  // Whether sizes in the graph depend on data.
  bool sized_by_data = false;
  // Whether the forward draws random numbers.
  bool draws = false;
};

// The graph and the call that a contract is to fit.
struct GraphFacts {
  std::size_t inputs = 0;          // of the forward graph
  std::size_t outputs = 0;         // of the forward graph
  std::size_t cotangents = 0;      // results that require a gradient
  std::size_t arguments = 0;       // tensors of the call
  std::vector<std::string> state;  // names of the module's parameters and buffers
};

// The contract that the text is. kCorruption, naming the field, where one is missing, is not of its type or
// out of its range, and where there is anything else.
Result<Contract> parse(std::string_view text);

// The same for JSON that is no text yet.
Result<Contract> from_json(const Json& json);

// The text that `parse` reads as an equal contract.
std::string print(const Contract& contract);

// The JSON of one part, as it is in the text.
Json json_of(const CallSizes& sizes);
Json json_of(const FunctionCall& call);

// Of a contract, in the order in which they are written.
std::vector<std::string> field_names();

// kCorruption, naming the field, where a contract is not about this graph and this call.
Status check_fit(const Contract& contract, const GraphFacts& facts);

}  // namespace rekindle::contract
