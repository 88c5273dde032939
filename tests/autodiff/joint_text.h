// Text in, text out: what the tests of this room share.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/autodiff/gradient.h"
#include "src/graph/text/parse.h"
#include "src/graph/text/print.h"
#include "src/graph/verify.h"

namespace rekindle::autodiff {

std::unique_ptr<graph::Graph> parse_or_fail(const std::string& text);

// "101": the gradients of inputs 0 and 2 are wanted, or cotangents 0 and 2 are present.
std::vector<bool> flags(std::string_view text);

void verify_or_fail(const JointGraph& joint);

// The joint graph of a text, verified.
JointGraph joint_of(const std::string& text, std::string_view needs);

// A forward graph of the given inputs, body lines and outputs.
std::string graph_text(const std::string& inputs, const std::string& body, const std::string& outputs = "%y");

// One node a line, types left out, values without a name of their own numbered %1, %2, ... from `first` on.
class BodyText {
 public:
  void add(const graph::Node& node);
  void add_return(const std::vector<graph::Value*>& values);
  const std::string& text() const { return text_; }

 private:
  std::string readable(std::string line);

  std::map<std::string, std::size_t> numbers_;
  std::string text_;
};

// The whole body of a joint graph.
std::string body_of(const JointGraph& joint);

// What differentiate() adds to a forward graph: the nodes after its own, and the gradients returned.
std::string backward_of(const std::string& forward, std::string_view needs);

// The message of the error that differentiate() gives.
Error error_of(const std::string& forward, std::string_view needs);

}  // namespace rekindle::autodiff
