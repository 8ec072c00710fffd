#include "text/template/strftime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace baton::text::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                                      "July",    "August",   "September", "October", "November", "December"};

// A number with what fills its field up to a width; flags change that.
struct Number {
  int value;
  int width;
  char fill = '0';
};

class TimeFormat {
 public:
  TimeFormat(RenderState& s, const std::tm& t) : s_(s), t_(t) {}

  // The text of one directive with its flag (0 if none); fails for unknown ones.
  std::string directive(char d, char flag) {
    std::string text;
    if (const auto n = number_of(d)) {
      const char fill = flag == '-' ? '\0' : flag == '_' ? ' ' : flag == '0' ? '0' : n->fill;
      text = fmt::format("{}", n->value);
      while (fill != '\0' && static_cast<int>(text.size()) < n->width) text.insert(text.begin(), fill);
      return text;
    }
    switch (d) {
      case 'a': text = kDays[day()].substr(0, 3); break;
      case 'A': text = kDays[day()]; break;
      case 'b':
      case 'h': text = kMonths[month()].substr(0, 3); break;
      case 'B': text = kMonths[month()]; break;
      case 'p': text = t_.tm_hour < 12 ? "AM" : "PM"; break;
      case 'P': text = t_.tm_hour < 12 ? "am" : "pm"; break;
      case 'c': text = all("a b e T Y"); break;
      case 'D':
      case 'x': text = all("m/d/y"); break;
      case 'F': text = all("Y-m-d"); break;
      case 'R': text = all("H:M"); break;
      case 'T':
      case 'X': text = all("H:M:S"); break;
      case 'r': text = all("I:M:S p"); break;
      case 'n': text = "\n"; break;
      case 't': text = "\t"; break;
      case 'f': text = "000000"; break;  // Python's microseconds
      case 'z':
      case 'Z': break;  // a time without zone, as datetime.now() gives it
      default: s_.fail(fmt::format("strftime_now(): the directive '%{}' is not supported", d));
    }
    if (flag == '^')
      for (char& c : text)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    return text;
  }

 private:
  std::optional<Number> number_of(char d) const {
    const int year = t_.tm_year + 1900;
    const int twelve = t_.tm_hour % 12 == 0 ? 12 : t_.tm_hour % 12;
    switch (d) {
      case 'd': return Number{t_.tm_mday, 2};
      case 'e': return Number{t_.tm_mday, 2, ' '};
      case 'm': return Number{t_.tm_mon + 1, 2};
      case 'y': return Number{year % 100, 2};
      case 'Y': return Number{year, 1};
      case 'C': return Number{year / 100, 2};
      case 'H': return Number{t_.tm_hour, 2};
      case 'k': return Number{t_.tm_hour, 2, ' '};
      case 'I': return Number{twelve, 2};
      case 'l': return Number{twelve, 2, ' '};
      case 'M': return Number{t_.tm_min, 2};
      case 'S': return Number{t_.tm_sec, 2};
      case 'j': return Number{t_.tm_yday + 1, 3};
      case 'u': return Number{t_.tm_wday == 0 ? 7 : t_.tm_wday, 1};
      case 'w': return Number{t_.tm_wday, 1};
      case 'U': return Number{(t_.tm_yday + 7 - t_.tm_wday) / 7, 2};
      case 'W': return Number{(t_.tm_yday + 7 - (t_.tm_wday + 6) % 7) / 7, 2};
      case 'V': return Number{iso_week().first, 2};
      case 'G': return Number{iso_week().second, 1};
      case 'g': return Number{iso_week().second % 100, 2};
      default: return {};
    }
  }

  // Week and year by ISO 8601: week 1 holds the year's first Thursday.
  std::pair<int, int> iso_week() const {
    const int year = t_.tm_year + 1900;
    const int monday_first = (t_.tm_wday + 6) % 7;
    const int week = (t_.tm_yday - monday_first + 10) / 7;
    const auto weeks_in = [](int y) {
      const auto dec31 = [](int x) { return (x + x / 4 - x / 100 + x / 400) % 7; };
      return dec31(y) == 4 || dec31(y - 1) == 3 ? 53 : 52;
    };
    if (week < 1) return {weeks_in(year - 1), year - 1};
    if (week > weeks_in(year)) return {1, year + 1};
    return {week, year};
  }

  // Letters are directives here.
  std::string all(std::string_view pattern) {
    std::string text;
    for (const char c : pattern) text += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? directive(c, 0) : std::string(1, c);
    return text;
  }
  size_t day() const { return static_cast<size_t>(std::clamp(t_.tm_wday, 0, 6)); }
  size_t month() const { return static_cast<size_t>(std::clamp(t_.tm_mon, 0, 11)); }

  RenderState& s_;
  const std::tm& t_;
};

}  // namespace

Value format_time(RenderState& s, const Text& format) {
  TimeFormat time(s, s.now());
  TextBuilder out(s.meter());
  const std::string_view v = format.view();
  size_t copied = 0;
  for (size_t at = v.find('%'); at != std::string_view::npos && s.take_items(1); at = v.find('%', copied)) {
    out.append(format, copied, at);
    const bool untrusted = format.untrusted_at(at);
    size_t d = at + 1;
    char flag = 0;
    if (d < v.size() && std::string_view("-_0^").find(v[d]) != std::string_view::npos) flag = v[d++];
    if (d >= v.size()) {
      copied = at;  // a lone '%' at the end stays
      break;
    }
    out.append(v[d] == '%' ? "%" : time.directive(v[d], flag), untrusted);
    copied = d + 1;
  }
  out.append(format, copied, v.size());
  return out.finish();
}

}  // namespace baton::text::jinja
