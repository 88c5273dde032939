// The characters of names and numbers in the text form. Internal to print.cc and text_scanner.cc.
#pragma once

namespace rekindle::graph {

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace rekindle::graph
