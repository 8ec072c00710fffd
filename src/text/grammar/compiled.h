// What a CompiledGrammar holds.
#pragma once

#include <memory>

#include "text/grammar.h"
#include "text/grammar/backend.h"

namespace baton::text {

struct CompiledGrammar::State {
  std::shared_ptr<const GrammarBackend> backend;
  FfiValue grammar;
  size_t bytes = 0;
  int64_t mask_us = 0;  // the limit
};

}  // namespace baton::text
