// Graphs from text, for tests: what does not parse or verify fails the test with its error.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string_view>

#include "src/graph/text/parse.h"
#include "src/graph/text/print.h"
#include "src/graph/verify.h"

namespace rekindle::testing {

inline std::unique_ptr<graph::Graph> graph_from(std::string_view text) {
  auto parsed = graph::parse(text);
  if (!parsed.ok()) FAIL(parsed.error().message);
  const Status status = graph::verify(**parsed);
  if (!status.ok()) FAIL(status.error().message);
  return std::move(parsed).value();
}

}  // namespace rekindle::testing
