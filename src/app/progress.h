// A progress line on standard error, shown only on a terminal and only once work has taken a moment.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace baton::app {

class Progress {
 public:
  Progress(std::string what, int64_t total);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(int64_t done);
  void restart(std::string what, int64_t total);

 private:
  void clear();
  std::string what_;
  int64_t total_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace baton::app
