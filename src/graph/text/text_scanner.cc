#include "src/graph/text/text_scanner.h"

#include <bit>
#include <charconv>
#include <limits>
#include <type_traits>

#include "src/graph/text/characters.h"

namespace rekindle::graph {

void TextScanner::fail(std::string message) {
  if (error_) return;
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < token_ && i < text_.size(); ++i) {
    column = text_[i] == '\n' ? 1 : column + 1;
    line += text_[i] == '\n' ? 1 : 0;
  }
  error_ = invalid_argument("graph text, line " + std::to_string(line) + ", column " +
                            std::to_string(column) + ": " + std::move(message));
  at_ = text_.size();
}

void TextScanner::skip_space() {
  while (at_ < text_.size()) {
    if (text_[at_] == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r') {
      ++at_;
    } else {
      break;
    }
  }
  if (!error_) token_ = at_;
}

bool TextScanner::at_end() {
  skip_space();
  return at_ == text_.size();
}

bool TextScanner::accept(std::string_view token) {
  skip_space();
  if (failed() || text_.substr(at_, token.size()) != token) return false;
  // A keyword must not be the beginning of a longer word.
  const char after = at_ + token.size() < text_.size() ? text_[at_ + token.size()] : ' ';
  if (is_letter(token.back()) && (is_letter(after) || is_digit(after))) return false;
  at_ += token.size();
  return true;
}

void TextScanner::expect(std::string_view token) {
  if (accept(token)) return;
  fail("expected '" + std::string(token) + "'" +
       (at_ < text_.size() ? ", found '" + std::string(1, text_[at_]) + "'" : ", found the end of the text"));
}

bool TextScanner::peek(char c) {
  skip_space();
  return !failed() && next() == c;
}

template <typename Accepts>
std::string TextScanner::take_while(Accepts accepts) {
  const std::size_t begin = at_;
  while (at_ < text_.size() && accepts(text_[at_])) ++at_;
  return std::string(text_.substr(begin, at_ - begin));
}

bool TextScanner::peek_word() {
  skip_space();
  return !failed() && (is_letter(next()) || next() == '"');
}

std::string TextScanner::word() {
  skip_space();
  if (next() == '"') return quoted();
  if (!is_letter(next())) {
    fail("expected a name");
    return {};
  }
  return take_while([](char c) { return is_letter(c) || is_digit(c) || c == '.'; });
}

std::string TextScanner::value_name() {
  skip_space();
  if (next() != '%') {
    fail("expected a value, such as %x");
    return {};
  }
  ++at_;
  if (next() == '"') return quoted();
  std::string name = take_while(
      [](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '/' || c == '$' || c == '-'; });
  if (name.empty()) fail("expected a name after '%'");
  return name;
}

std::string TextScanner::quoted() {
  expect("\"");
  std::string result;
  while (!failed() && next() != '"') {
    if (at_ == text_.size()) {
      fail("this string has no closing quote");
      return {};
    }
    const char c = text_[at_++];
    result += c == '\\' ? escaped() : c;
  }
  if (!failed()) ++at_;
  return result;
}

char TextScanner::escaped() {
  const char kind = next();
  ++at_;
  if (kind == '"' || kind == '\\') return kind;
  if (kind == 'n') return '\n';
  if (kind == 'x') {
    const int high = hex_digit(), low = hex_digit();
    if (high >= 0 && low >= 0) return static_cast<char>(high * 16 + low);
  }
  fail("a backslash in a string must be followed by \\, \", n or x and two hexadecimal digits");
  return 0;
}

int TextScanner::hex_digit() {
  const char c = next();
  if (at_ < text_.size()) ++at_;
  if (is_digit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string TextScanner::number() {
  skip_space();
  std::string text =
      take_while([](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '+'; });
  if (text == "nan" && next() == '(')
    text += take_while([](char c) { return c != ')' && c != '\n'; }) + ")", accept(")");
  if (text.empty()) fail("expected a number");
  return text;
}

std::int64_t TextScanner::integer() {
  const std::string text = number();
  const auto value = number_from_text<std::int64_t>(text);
  if (!value) fail("'" + text + "' is not a 64-bit integer");
  return value.value_or(0);
}

template <typename T>
std::optional<T> number_from_text(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    if (text == "nan") return std::numeric_limits<T>::quiet_NaN();
    if (text.starts_with("nan(0x") && text.ends_with(")")) {
      Bits bits = 0;
      const auto [stop, error] = std::from_chars(text.data() + 6, end - 1, bits, 16);
      if (error != std::errc() || stop != end - 1) return std::nullopt;
      return std::bit_cast<T>(bits);
    }
  }
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

template std::optional<float> number_from_text(std::string_view);
template std::optional<double> number_from_text(std::string_view);
template std::optional<std::int64_t> number_from_text(std::string_view);
template std::optional<std::uint64_t> number_from_text(std::string_view);

}  // namespace rekindle::graph
