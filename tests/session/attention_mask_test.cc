#include "session/lower/attention_mask.h"

#include <ATen/ops/ones.h>

#include <catch2/catch.hpp>

using rekindle::session::known_mask;
using rekindle::session::KnownMask;

TEST_CASE("masks that attention can do without are told", "[session][host]") {
  const at::Tensor all = at::ones({5, 5}, at::kBool), causal = all.tril();
  CHECK(known_mask(all, 5, 5) == KnownMask::kAll);
  CHECK(known_mask(at::ones({1, 1, 1, 7}, at::kBool), 5, 7) == KnownMask::kAll);
  CHECK(known_mask(causal, 5, 5) == KnownMask::kCausal);
  CHECK(known_mask(causal.expand({3, 2, 5, 5}), 5, 5) == KnownMask::kCausal);
  CHECK(known_mask(at::ones({1, 1}, at::kBool), 1, 1) == KnownMask::kAll);  // of one token, both
}

TEST_CASE("other masks are kept", "[session][host]") {
  const at::Tensor causal = at::ones({5, 5}, at::kBool).tril();
  at::Tensor one_differs = causal.repeat({2, 1, 1, 1});
  one_differs[1][0][4][0] = false;
  for (const at::Tensor& mask :
       {causal.tril(-1), causal.triu(-2), causal.t(), one_differs, causal.logical_not()})
    CHECK(known_mask(mask, 5, 5) == KnownMask::kOther);
  CHECK(known_mask(at::ones({5, 7}, at::kBool).tril(2), 5, 7) == KnownMask::kOther);  // as with earlier keys
  CHECK(known_mask(at::ones({5, 7}, at::kBool).tril(), 5, 7) == KnownMask::kOther);
  CHECK(known_mask(causal.to(at::kFloat), 5, 5) == KnownMask::kOther);  // is added to the scores
  CHECK(known_mask(causal[3], 5, 5) == KnownMask::kOther);              // a row for all queries
  CHECK(known_mask(at::ones({0, 5}, at::kBool), 0, 5) == KnownMask::kOther);
}
