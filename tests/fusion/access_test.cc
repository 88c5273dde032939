#include "src/fusion/access.h"

#include <catch2/catch.hpp>

using rekindle::fusion::Access;
using rekindle::fusion::collapsed;
using rekindle::fusion::Numbers;

TEST_CASE("Dimensions that all operands count through alike are one") {
  const Access made = collapsed({{8, 512, 768}, {{393216, 768, 1}, {0, 0, 1}, {393216, 768, 1}}});
  CHECK(made.sizes == Numbers{4096, 768});
  CHECK(made.strides == std::vector<Numbers>{{768, 1}, {0, 1}, {768, 1}});
}

TEST_CASE("A tensor without gaps is one dimension, in whatever order its dimensions are") {
  const Access made = collapsed({{2, 3, 4, 5}, {{60, 1, 15, 3}, {60, 1, 15, 3}}});  // channels-last
  CHECK(made.sizes == Numbers{120});
  CHECK(made.strides == std::vector<Numbers>{{1}, {1}});
}

TEST_CASE("The last operand says in which order elements are taken") {
  const Access made = collapsed({{2, 3}, {{3, 1}, {1, 2}}});
  CHECK(made.sizes == Numbers{3, 2});
  CHECK(made.strides == std::vector<Numbers>{{1, 3}, {2, 1}});
}

TEST_CASE("One number has one dimension") {
  CHECK(collapsed({{}, {{}, {}}}).sizes == Numbers{1});
  CHECK(collapsed({{1, 1}, {{7, 3}, {1, 1}}}).strides == std::vector<Numbers>{{0}, {1}});
  CHECK(collapsed({{1, 1}, {{7, 3}, {1, 1}}}).elements() == 1);
}

TEST_CASE("A thread takes as many neighbours as fill each row") {
  using rekindle::fusion::width_of;
  CHECK(width_of({{5, 8}, {{8, 1}}}) == 4);
  CHECK(width_of({{5, 6}, {{6, 1}}}) == 2);
  CHECK(width_of({{4, 7}, {{7, 1}}}) == 1);
}
