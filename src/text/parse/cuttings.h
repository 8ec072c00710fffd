// For tests: one output cut in many ways, and the events of each cutting.
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/parse/output_parser.h"
#include "text/utf8.h"

namespace baton::text {

using Pieces = std::vector<std::string_view>;

inline Pieces by_byte(std::string_view text) {
  Pieces pieces;
  for (size_t i = 0; i < text.size(); ++i) pieces.push_back(text.substr(i, 1));
  return pieces;
}

inline Pieces by_character(std::string_view text) {
  Pieces pieces;
  for (size_t at = 0; at < text.size(); at += pieces.back().size())
    pieces.push_back(text.substr(at, read_char(text.data() + at, text.data() + text.size()).bytes));
  return pieces;
}

// Pieces of 0 to `most` bytes.
inline Pieces at_random(std::string_view text, std::mt19937_64& random, size_t most) {
  Pieces pieces;
  for (size_t at = 0; at < text.size(); at += pieces.back().size()) pieces.push_back(text.substr(at, random() % (most + 1)));
  return pieces;
}

inline std::vector<OutputEvent> merged(std::vector<OutputEvent> events) {
  std::vector<OutputEvent> result;
  for (OutputEvent& event : events) append_merged(result, std::move(event));
  return result;
}

inline std::vector<OutputEvent> parse_pieces(const OutputMarkup& markup, const OutputParser::Options& options, const Pieces& pieces,
                                             FinishReason engine) {
  OutputParser parser(markup, options);
  std::vector<OutputEvent> all;
  for (const std::string_view piece : pieces) {
    std::vector<OutputEvent> events;  // an empty list each time, as a server has it
    parser.add_text(piece, events);
    all.insert(all.end(), events.begin(), events.end());
  }
  parser.finish(engine, all);
  return merged(std::move(all));
}

inline std::vector<OutputEvent> parse_ids(const OutputMarkup& markup, const OutputParser::Options& options, std::span<const int32_t> ids,
                                          FinishReason engine) {
  OutputParser parser(markup, options);
  std::vector<OutputEvent> events;
  for (const int32_t id : ids) parser.add(id, events);
  parser.finish(engine, events);
  return merged(std::move(events));
}

}  // namespace baton::text
