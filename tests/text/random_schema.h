// Random JSON schemas of what Baton holds output to, and a plain validator for just that.
#pragma once

#include <boost/json/value.hpp>
#include <random>
#include <string>

namespace baton::text {

class RandomSchema {
 public:
  explicit RandomSchema(uint64_t seed) : random_(seed) {}

  // With $defs and references into them, some of them recursive.
  boost::json::object schema();
  // The parameters of a function.
  boost::json::object parameters();

 private:
  uint64_t below(uint64_t n) { return random_() % n; }
  boost::json::object value(int depth);
  boost::json::object string();
  boost::json::object integer();
  boost::json::object number();
  boost::json::object array(int depth);
  boost::json::object object(int depth);
  boost::json::value scalar();
  std::string word();

  std::mt19937_64 random_;
  int definitions_ = 0;
};

// What is wrong with `value`; empty if it satisfies `schema`. `root` is where references lead from.
std::string violation(const boost::json::value& value, const boost::json::value& schema, const boost::json::value& root);

}  // namespace baton::text
