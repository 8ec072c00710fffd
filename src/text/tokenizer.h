// Text to token ids and back, as tokenizer.json says: byte-level BPE with the ids of Hugging Face's `tokenizers`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace baton::text {

struct TokenizerParts;

// Which added tokens are recognised in text.
enum class AddedTokens {
  kAll,         // every one
  kNotSpecial,  // those marked `special: false`; the others are text
  kNone         // none: nothing in the text becomes an added token
};

struct EncodeOptions {
  AddedTokens added_tokens = AddedTokens::kAll;
  bool add_special_tokens = false;  // what the post-processor puts around a text
};

// Immutable; every function may be called from any thread at once. Move-only.
class Tokenizer {
 public:
  // A tokenizer.json, or the folder that holds one.
  static Result<Tokenizer> load(const std::filesystem::path& path);
  // `where` names the text in messages.
  static Result<Tokenizer> parse(std::string_view json, const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // `text` is UTF-8; each maximal broken part counts as U+FFFD. `untrusted` are byte ranges of it, ascending and apart, whose text never
  // becomes an added token, nor part of one, nor white space that one swallows. They do not change how words are cut and merged; but where
  // a normalizer is set, nothing composes across their edges. Fails for ranges outside the text, for text beyond kMostTextBytes, and where
  // the file's pattern would take too long.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {},
                                      std::span<const TextRange> untrusted = {}) const;
  static constexpr size_t kMostTextBytes = size_t{1} << 30;

  // The text of ids; bytes that are no character become U+FFFD, ids that do not exist vanish. To decode as ids arrive: detokenizer.h.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // Tokens as they stand in the file: bytes written in the byte alphabet, added tokens as they are.
  std::optional<int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token(int32_t id) const;
  // What an id contributes to a text; may be part of a character. Empty for ids that do not exist.
  std::string_view bytes(int32_t id) const;
  // Stands between the bytes of two ids in decoded text; empty for all usual files.
  std::string_view joiner() const;

  bool has(int32_t id) const;
  bool is_special(int32_t id) const;  // added, and left out of text when special tokens are skipped
  bool is_added(int32_t id) const;
  size_t size() const;       // how many ids exist, added ones included
  int32_t id_limit() const;  // one above the highest id
  std::vector<int32_t> added_ids() const;

  // Sends all text through the file's pattern, even where a faster way is known; for tests that compare the two.
  void use_pattern_only();

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace baton::text
