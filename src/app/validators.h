// Checks of option values that CLI11's own let pass: NaN in ranges, signs and overflow of unsigned numbers.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace baton::app {

inline CLI::Validator between(double low, double high, const std::string& description) {
  return {[=](std::string& text) {
            double x = 0;
            const bool number = CLI::detail::lexical_cast(text, x);
            return number && x >= low && x <= high ? std::string() : fmt::format("{} is not {}", text, description);
          },
          description};
}

inline CLI::Validator whole_number_64() {
  return {[](std::string& text) {
            uint64_t x = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
            const bool number = error == std::errc() && end == text.data() + text.size();
            return number ? std::string() : fmt::format("{} is not a whole number from 0 to {}", text, UINT64_MAX);
          },
          "whole number"};
}

}  // namespace baton::app
