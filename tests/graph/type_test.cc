#include "src/graph/type.h"

#include <catch2/catch.hpp>

using namespace rekindle::graph;

TEST_CASE("shapes are the same only when both are known", "[graph]") {
  const auto type = [](std::vector<Dim> dims) { return TensorType{DType::kFloat32, std::move(dims)}; };
  CHECK(have_same_shape(type({Dim::named("n"), Dim::of(3)}), type({Dim::named("n"), Dim::of(3)})));
  CHECK_FALSE(have_same_shape(type({Dim::named("n")}), type({Dim::named("m")})));
  CHECK_FALSE(have_same_shape(type({Dim{}}), type({Dim{}})));
  CHECK_FALSE(have_same_shape(type({Dim::of(1)}), type({Dim::of(1), Dim::of(1)})));
  CHECK_FALSE(have_same_shape(TensorType{}, TensorType{}));
}
