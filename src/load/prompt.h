// Prompts as recipes: stretches of tokens drawn from a key when they are needed. Two stretches with one key are the same tokens, which
// is how prompts share prefixes, and 64K tokens take no memory before they are sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton::load {

enum class Role : uint8_t { kSystem, kUser, kAssistant };

struct Stretch {
  Role role = Role::kUser;  // only chats tell roles apart
  uint64_t key = 0;
  int64_t tokens = 0;
};

struct Prompt {
  std::vector<Stretch> stretches = {};
  std::string text = {};  // a literal prompt instead, if there are no stretches

  int64_t tokens() const;  // 0 for a literal prompt: only the server can count it
};

// Which ids are drawn: `count` of them from `first` on.
struct Vocabulary {
  int32_t first = 0;
  int32_t count = 32'000;
};

// A key for part `index` of `parent`; keys of different parts are as good as independent.
uint64_t key_of(uint64_t parent, uint64_t index);

// "[12,7,...]", the ids of all stretches.
std::string ids_json(const Prompt& prompt, const Vocabulary& vocabulary);
// Short English words, one for each token; most tokenizers have each as one token. Ends without a space.
std::string words_of(const Stretch& stretch);
// All stretches, or the literal text.
std::string text_of(const Prompt& prompt);

}  // namespace baton::load
