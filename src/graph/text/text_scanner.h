// TextScanner: reads the tokens of the text form. Internal to parse.cc.
//
// The first failure sticks: from then on every read returns an empty value and nothing advances, so that
// callers check once, at the end of a loop or of the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace rekindle::graph {

class TextScanner {
 public:
  explicit TextScanner(std::string_view text) : text_(text) {}

  bool failed() const { return error_.has_value(); }
  // Precondition: failed().
  const Error& error() const { return *error_; }
  // Records `message` with the line and column of the last token read.
  void fail(std::string message);

  bool at_end();
  // Skips `token` when it comes next.
  bool accept(std::string_view token);
  // accept, or a failure that names what was expected.
  void expect(std::string_view token);
  // True when the next character is `c`.
  bool peek(char c);

  // A letter or '_', then letters, digits, '_' and '.'; or anything in quotes.
  std::string word();
  bool peek_word();
  // The name after a '%'.
  std::string value_name();
  // A string in quotes, unescaped.
  std::string quoted();
  // The characters of a number, or of inf and nan with sign and bits. Empty after a failure.
  std::string number();
  std::int64_t integer();

 private:
  void skip_space();
  template <typename Accepts>
  std::string take_while(Accepts accepts);
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char escaped();
  int hex_digit();

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t token_ = 0;  // where the last token began
  std::optional<Error> error_;
};

// Converts the text of a number. nullopt when it is none, or does not fit T.
template <typename T>
std::optional<T> number_from_text(std::string_view text);

}  // namespace rekindle::graph
