// TfIdfVectorizer over integers.
#include <ATen/ops/zeros.h>

#include <map>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

struct Vectorizer {
  std::map<Sizes, std::size_t> pool;  // n-gram -> its number
  Sizes columns;                      // per n-gram
  std::vector<double> weights;        // per n-gram
  std::int64_t shortest, longest, skips;
  bool counts, weighted;
};

Vectorizer vectorizer_of(const LowerContext& context) {
  const graph::Node& node = context.node();
  const std::string mode = context.string_attribute("mode", "TF");
  Vectorizer how{{},
                 node.ints_attribute("ngram_indexes", {}),
                 {},
                 context.int_attribute("min_gram_length", 1),
                 context.int_attribute("max_gram_length", 1),
                 context.int_attribute("max_skip_count", 0),
                 mode != "IDF",
                 mode != "TF"};
  const Sizes tokens = node.ints_attribute("pool_int64s", {}),
              starts = node.ints_attribute("ngram_counts", {});
  for (std::size_t n = 1; n <= starts.size(); ++n) {
    const auto begin = static_cast<std::size_t>(starts[n - 1]),
               end = n < starts.size() ? static_cast<std::size_t>(starts[n]) : tokens.size();
    for (std::size_t at = begin; at + n <= end && end <= tokens.size(); at += n) {
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(at);
      how.pool.emplace(Sizes(first, first + static_cast<std::ptrdiff_t>(n)), how.pool.size());
    }
  }
  TORCH_CHECK(how.pool.size() == how.columns.size(), "TfIdfVectorizer has ", how.pool.size(), " n-grams and ",
              how.columns.size(), " ngram_indexes");
  how.weights.assign(how.columns.size(), 1);
  if (const auto* weights = node.attribute("weights")) how.weights = std::get<std::vector<double>>(*weights);
  TORCH_CHECK(how.weights.size() == how.columns.size(), "TfIdfVectorizer has ", how.weights.size(),
              " weights");
  return how;
}

// Counts n-grams in `tokens`; between two elements of one, 0 to `skips` tokens are left out. One of a single
// token has no gaps.
void count(const Vectorizer& how, at::TensorAccessor<std::int64_t, 1> tokens,
           at::TensorAccessor<float, 1> row) {
  for (std::int64_t n = how.shortest; n <= how.longest; ++n) {
    for (std::int64_t step = 1; step <= (n == 1 ? 1 : how.skips + 1); ++step) {
      for (std::int64_t start = 0; start + (n - 1) * step < tokens.size(0); ++start) {
        Sizes gram;
        for (std::int64_t i = 0; i < n; ++i) gram.push_back(tokens[start + i * step]);
        const auto found = how.pool.find(gram);
        if (found != how.pool.end()) row[how.columns[found->second]] += 1;
      }
    }
  }
  for (std::size_t i = 0; i < how.columns.size(); ++i) {
    float& cell = row[how.columns[i]];
    if (!how.counts && cell > 1) cell = 1;
    if (how.weighted) cell *= static_cast<float>(how.weights[i]);
  }
}

// Input: tokens[C] or [N, C].
Lowering lower_tf_idf_vectorizer(const LowerContext& context) {
  const Vectorizer how = vectorizer_of(context);
  std::int64_t width = 0;
  for (const std::int64_t column : how.columns) {
    TORCH_CHECK(column >= 0 && column < (1 << 24), "ngram_indexes has ", column);
    width = std::max(width, column + 1);
  }
  Sizes sizes = context.sizes(0);
  TORCH_CHECK(sizes.size() == 1 || sizes.size() == 2, "TfIdfVectorizer of rank ", sizes.size());
  sizes.back() = width;
  return computed(at::kFloat, sizes, [how, width](const Args& args) {
    const at::Tensor tokens = args.in(0).cpu().to(at::kLong).reshape({-1, args.in(0).size(-1)});
    at::Tensor rows = at::zeros({tokens.size(0), width}, at::TensorOptions().dtype(at::kFloat));
    auto to = rows.accessor<float, 2>();
    for (std::int64_t i = 0; i < tokens.size(0); ++i)
      count(how, tokens.accessor<std::int64_t, 2>()[i], to[i]);
    args.out().copy_(rows.view(args.out().sizes()));
  });
}

}  // namespace

REKINDLE_OP("", "TfIdfVectorizer", lower_tf_idf_vectorizer);

}  // namespace rekindle::session
