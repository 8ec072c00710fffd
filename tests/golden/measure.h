// How far a tensor is from its golden values, in the three measures that golden folders state tolerances for.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

namespace baton::golden {

// max |x - g| / max |g|;  |x - g| / |g| (Euclidean);  median over the entries of dimension 0 of the row's |x - g| / |g|.
using Measures = std::array<double, 3>;

// Rows with tied[r] count in the median alone (empty: none is tied).
Measures measure(const float* x, const float* golden, int64_t rows, int64_t row_elements, const std::vector<bool>& tied = {});

// What one folder and one mode of arithmetic gave, by tensor kind.
class Report {
 public:
  struct Entry {
    std::map<int, Measures> by_prompt;
    Measures tolerance{};
    bool has_tolerance = false;
    int64_t choices = 0;    // discrete kinds: rows compared
    int64_t different = 0;  // of which chosen differently
    int64_t allowed = 0;    // differences that the mode permits
    Measures worst() const;
    bool passed() const;
  };
  void add(const std::string& kind, int prompt, const Measures& m);
  void add_choices(const std::string& kind, int64_t rows, int64_t different, bool must_match);
  void note(const std::string& text) { notes_.push_back(text); }
  void set_tolerance(const std::string& kind, const Measures& t);
  bool passed() const;
  // Reports of the same folder and mode on several instruction sets, which sum in other orders. tie_prone: where a value lies on a rounding
  // tie, one order falls to one side and the next to the other, while an error shows in all of them; so a measure counts, prompt by prompt,
  // by its smallest value among the reports. Otherwise by its largest.
  static Report merge(const std::vector<Report>& reports, bool tie_prone);
  void print(const std::string& title) const;

 private:
  std::map<std::string, Entry> entries_;
  std::vector<std::string> notes_;
};

}  // namespace baton::golden
