// Which rows of tokens a call needs: those of the loss, and what they see.
#include "session/padding/needed_rows.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using rekindle::padding::Mask;
using rekindle::padding::RowQuestions;
using rekindle::session::find_needed_rows;
using rekindle::session::NeededRows;

namespace {

at::Tensor flags(const std::vector<std::int64_t>& values, at::IntArrayRef sizes) {
  return at::tensor(values).view(sizes);
}

void check_rows(const at::Tensor& rows, const std::vector<std::int64_t>& expected) {
  INFO(rows);
  CHECK(at::equal(rows.cpu(), at::tensor(expected, at::kLong)));
}

// Two sequences of four; only the target of token 1 of the first is not ignored.
const std::vector<std::int64_t> kTargets{-100, 3, -100, -100, -100, -100, -100, -100};

RowQuestions questions(RowQuestions::Sight sight) {
  RowQuestions asked;
  asked.targets = {{0, -100}};
  asked.sights = {std::move(sight)};
  return asked;
}

}  // namespace

TEST_CASE("a query needs the keys that its mask shows", "[session][padding][host]") {
  const at::Tensor keep = flags({1, 1, 1, 0, 1, 1, 1, 1}, {2, 1, 1, 4}).to(at::kBool);
  const auto asked = questions({{{1, Mask::How::kKeeps}}, false, true});
  const NeededRows found = find_needed_rows(asked, {flags(kTargets, {8}), keep}, 2, 4);
  check_rows(found.rows, {0, 1, 2});
  check_rows(found.counted, {1});
  check_rows(found.counted_among_rows, {1});
  CHECK(found.needed == 3);
  CHECK(found.counts == 1);
  // The same by what is added, and by what is hidden.
  const at::Tensor low = keep.logical_not().to(at::kFloat).mul(-3e38);
  check_rows(
      find_needed_rows(questions({{{1, Mask::How::kAdded}}, false, true}), {flags(kTargets, {8}), low}, 2, 4)
          .rows,
      {0, 1, 2});
  check_rows(find_needed_rows(questions({{{1, Mask::How::kHides}}, false, true}),
                              {flags(kTargets, {8}), keep.logical_not()}, 2, 4)
                 .rows,
             {0, 1, 2});
}

TEST_CASE("an added mask that is not low hides nothing", "[session][padding][host]") {
  const at::Tensor low = at::full({1, 1, 1, 4}, -1e4, at::kFloat);
  const auto asked = questions({{{1, Mask::How::kAdded}}, false, true});
  check_rows(find_needed_rows(asked, {flags(kTargets, {8}), low}, 2, 4).rows, {0, 1, 2, 3});
}

TEST_CASE("of a causal attention earlier keys are needed, and what these see in turn",
          "[session][padding][host]") {
  check_rows(find_needed_rows(questions({{}, true, true}), {flags(kTargets, {8})}, 2, 4).rows, {0, 1});
  // 1 sees 0 only, 0 sees 3, 3 sees itself.
  at::Tensor sees = at::zeros({1, 1, 4, 4}, at::kBool);
  for (const auto& [query, key] : {std::pair{1, 0}, {0, 3}, {3, 3}, {2, 2}}) sees[0][0][query][key] = true;
  const auto asked = questions({{{1, Mask::How::kKeeps}}, false, true});
  check_rows(find_needed_rows(asked, {flags(kTargets, {8}), sees}, 2, 4).rows, {0, 1, 3});
}

TEST_CASE("a query from which all keys are hidden weighs them all", "[session][padding][host]") {
  const at::Tensor none = at::zeros({2, 1, 1, 4}, at::kBool);
  const auto asked = questions({{{1, Mask::How::kKeeps}}, false, true});
  check_rows(find_needed_rows(asked, {flags(kTargets, {8}), none}, 2, 4).rows, {0, 1, 2, 3});
}

TEST_CASE("heads differ: a key is needed that any of them shows", "[session][padding][host]") {
  const at::Tensor keep = flags({1, 0, 0, 0, 0, 0, 0, 1}, {1, 2, 1, 4}).to(at::kBool);
  const auto asked = questions({{{1, Mask::How::kKeeps}}, false, true});
  check_rows(find_needed_rows(asked, {flags(kTargets, {8}), keep}, 2, 4).rows, {0, 1, 3});
}

TEST_CASE("scores without heads have the batch first", "[session][padding][host]") {
  const at::Tensor keep = flags({1, 1, 0, 0, 1, 1, 1, 1}, {2, 1, 4}).to(at::kBool);
  const auto asked = questions({{{1, Mask::How::kKeeps}}, false, true, /*rank=*/3});
  check_rows(find_needed_rows(asked, {flags(kTargets, {8}), keep}, 2, 4).rows, {0, 1});
}

TEST_CASE("queries that are no rows count all", "[session][padding][host]") {
  const at::Tensor keep = flags({1, 1, 0, 0, 0, 0, 1, 0}, {2, 1, 1, 4}).to(at::kBool);
  const auto asked = questions({{{1, Mask::How::kKeeps}}, false, false});
  check_rows(find_needed_rows(asked, {flags(kTargets, {8}), keep}, 2, 4).rows, {0, 1, 6});
}

TEST_CASE("selected positions and weights count", "[session][padding][host]") {
  RowQuestions asked;
  asked.positions = {0, -1};
  asked.weights = {{0, /*negated=*/true}};
  const at::Tensor hides = flags({1, 1, 0, 1, 1, 1, 1, 1}, {2, 4, 1}).to(at::kBool);
  const NeededRows found = find_needed_rows(asked, {hides}, 2, 4);
  check_rows(found.rows, {0, 2, 3, 4, 7});
  check_rows(found.counted_among_rows, {0, 1, 2, 3, 4});
}

TEST_CASE("rows are filled up to a number that occurs often", "[session][padding][host]") {
  RowQuestions asked;
  asked.targets = {{0, -100}};
  at::Tensor targets = at::full({2 * 64}, -100, at::kLong);
  const NeededRows none = find_needed_rows(asked, {targets}, 2, 64);
  CHECK(none.rows.numel() == 4);  // 128 / 32
  CHECK(none.counted.numel() == 4);
  CHECK(none.needed == 0);
  CHECK(!none.is_needed.any().item<bool>());
  for (const std::int64_t row : {5, 70, 71, 100, 127}) targets[row] = 1;
  const NeededRows five = find_needed_rows(asked, {targets}, 2, 64);
  CHECK(five.rows.numel() == 8);
  CHECK(at::equal(five.rows, std::get<0>(at::sort(five.rows))));
  check_rows(five.rows.masked_select(five.is_needed), {5, 70, 71, 100, 127});
  check_rows(five.counted.masked_select(five.counts_itself), {5, 70, 71, 100, 127});
  CHECK(five.rows.eq(127).any().item<bool>());
  CHECK(at::equal(five.rows.index_select(0, five.counted_among_rows), five.counted));
}
