#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"
#include "text/word_encoder.h"

namespace baton::text {
namespace {

constexpr int64_t kMostFileBytes = int64_t{256} << 20;
constexpr size_t kKeptEncoders = 64;  // about a MiB each

enum AddedFlags : uint8_t { kAdded = 1, kSpecial = 2 };

Error bad_ranges() { return {Error::Kind::kInvalid, "untrusted ranges must be ascending, apart, and inside the text"}; }

}  // namespace

struct Tokenizer::State {
  TokenizerParts parts;
  std::vector<uint8_t> flags;    // AddedFlags by id
  AddedTokenMatcher raw;         // tokens looked for in the text as it comes
  AddedTokenMatcher normalized;  // and those looked for in what the normalizer makes of it

  // Encoders at rest. A call borrows one, so that none is shared and none is made anew.
  std::mutex mutex;
  std::vector<std::unique_ptr<WordEncoder>> encoders;

  std::unique_ptr<WordEncoder> borrow() {
    {
      const std::lock_guard lock(mutex);
      if (!encoders.empty()) {
        auto encoder = std::move(encoders.back());
        encoders.pop_back();
        return encoder;
      }
    }
    return std::make_unique<WordEncoder>();
  }
  void give_back(std::unique_ptr<WordEncoder> encoder) {
    const std::lock_guard lock(mutex);
    if (encoders.size() < kKeptEncoders) encoders.push_back(std::move(encoder));
  }
};

namespace {

// One call of encode().
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, const AddedTokenMatcher& raw, const AddedTokenMatcher& normalized, AddedTokens use,
           WordEncoder& encoder, IdBuffer& out)
      : parts_(parts), raw_(raw), normalized_(normalized), use_(use), encoder_(encoder), out_(out) {}

  // First the tokens of the raw text; what lies between is normalized; then the others; what lies between is words.
  Status run(std::string_view text, std::span<const TextRange> untrusted) {
    return around_tokens(raw_, text, untrusted, [&](std::string_view piece, size_t begin) -> Status {
      if (parts_.normalizer.empty()) return normalized_piece(piece, within(untrusted, begin, piece.size()));
      std::string made;
      std::vector<TextRange> made_untrusted;
      BATON_TRY(normalize(piece, within(untrusted, begin, piece.size()), made, made_untrusted));
      return normalized_piece(made, made_untrusted);
    });
  }

 private:
  Status normalized_piece(std::string_view piece, std::span<const TextRange> untrusted) {
    return around_tokens(normalized_, piece, untrusted,
                         [&](std::string_view words, size_t) { return encoder_.encode(parts_.pretokenizer, parts_.model, words, out_); });
  }

  // Writes the ids of tokens in `text` and calls `rest(piece, where it begins)` for what lies between, in order.
  template <class Rest>
  Status around_tokens(const AddedTokenMatcher& matcher, std::string_view text, std::span<const TextRange> untrusted, Rest rest) {
    if (text.empty()) return {};
    std::vector<AddedTokenMatcher::Match> matches;
    if (use_ != AddedTokens::kNone && !matcher.empty())
      matcher.find_all(text, trusted(untrusted, text.size()), use_ == AddedTokens::kNotSpecial, matches);
    size_t at = 0;
    for (const AddedTokenMatcher::Match& m : matches) {
      // A match may begin within white space that the one before it swallowed.
      if (at < m.begin) BATON_TRY(rest(text.substr(at, m.begin - at), at));
      out_.append({&m.token->id, 1});
      at = m.end;
    }
    if (at < text.size()) BATON_TRY(rest(text.substr(at), at));
    return {};
  }

  static std::vector<TextRange> trusted(std::span<const TextRange> untrusted, size_t size) {
    std::vector<TextRange> ranges;
    size_t at = 0;
    for (const TextRange& u : untrusted) {
      if (at < u.begin) ranges.push_back({at, u.begin});
      at = u.end;
    }
    if (at < size) ranges.push_back({at, size});
    return ranges;
  }

  // The parts of `ranges` that lie in [begin, begin + size), relative to begin.
  static std::vector<TextRange> within(std::span<const TextRange> ranges, size_t begin, size_t size) {
    std::vector<TextRange> result;
    for (const TextRange& r : ranges) {
      const size_t first = std::max(r.begin, begin), last = std::min(r.end, begin + size);
      if (first < last) result.push_back({first - begin, last - begin});
    }
    return result;
  }

  // Each stretch of equal origin by itself, so that a user's text neither changes the text around it nor hides where it came from.
  Status normalize(std::string_view text, std::span<const TextRange> untrusted, std::string& made, std::vector<TextRange>& made_untrusted) {
    size_t at = 0;
    const auto add = [&](size_t end) -> Status {
      if (at == end) return {};
      BATON_ASSIGN(const std::string part, parts_.normalizer.apply(text.substr(at, end - at)));
      made += part;
      at = end;
      return {};
    };
    for (const TextRange& u : untrusted) {
      BATON_TRY(add(u.begin));
      const size_t begin = made.size();
      BATON_TRY(add(u.end));
      if (begin < made.size()) made_untrusted.push_back({begin, made.size()});
    }
    return add(text.size());
  }

  const TokenizerParts& parts_;
  const AddedTokenMatcher& raw_;
  const AddedTokenMatcher& normalized_;
  AddedTokens use_;
  WordEncoder& encoder_;
  IdBuffer& out_;
};

bool ordered_and_inside(std::span<const TextRange> ranges, size_t size) {
  size_t at = 0;
  for (const TextRange& r : ranges) {
    if (r.begin < at || r.end < r.begin || r.end > size) return false;
    at = r.end;
  }
  return true;
}

// Broken parts replaced, each stretch of equal origin by itself.
std::string repaired(std::string_view text, std::vector<TextRange>& untrusted) {
  std::string out;
  size_t at = 0;
  for (TextRange& u : untrusted) {
    append_lossy(out, text.substr(at, u.begin - at));
    const size_t begin = out.size();
    append_lossy(out, text.substr(u.begin, u.end - u.begin));
    at = u.end;
    u = {begin, out.size()};
  }
  append_lossy(out, text.substr(at));
  return out;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const auto file = folder ? path / "tokenizer.json" : path;
  // A pipe that is given by its name is somebody's wish; one in a model's folder would let the program wait for ever.
  BATON_ASSIGN(const std::string json, folder ? read_regular_file(file, kMostFileBytes) : read_file(file, kMostFileBytes));
  return parse(json, file.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& where) {
  auto state = std::make_unique<State>();
  BATON_ASSIGN(state->parts, read_tokenizer_json(json, where));
  const TokenizerParts& parts = state->parts;
  for (const std::string& warning : parts.warnings) log_warning("{}: {}", where, warning);

  state->flags.resize(static_cast<size_t>(parts.vocabulary.id_limit()));
  std::vector<AddedTokenMatcher::Pattern> raw, normalized;
  for (const AddedToken& t : parts.added) {
    state->flags[static_cast<size_t>(t.id)] = static_cast<uint8_t>(kAdded | (t.special ? kSpecial : 0));
    (t.normalized ? normalized : raw).push_back({t.wanted, &t});
  }
  state->raw = AddedTokenMatcher(raw);
  state->normalized = AddedTokenMatcher(normalized);
  return Tokenizer(std::move(state));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                                               std::span<const TextRange> untrusted) const {
  if (text.size() > kMostTextBytes)
    return Error{Error::Kind::kExhausted, fmt::format("a text of {} bytes; at most {} can be encoded", text.size(), kMostTextBytes)};
  if (!ordered_and_inside(untrusted, text.size())) return bad_ranges();
  std::vector<TextRange> ranges(untrusted.begin(), untrusted.end());
  std::string repaired_text;
  // An edge within a character makes two broken parts of it.
  const bool edges_whole = std::all_of(ranges.begin(), ranges.end(), [&](const TextRange& r) {
    return (r.begin == text.size() || !is_continuation(text[r.begin])) && (r.end == text.size() || !is_continuation(text[r.end]));
  });
  if (!edges_whole || !valid_utf8(text)) {
    repaired_text = repaired(text, ranges);
    text = repaired_text;
  }

  const PostProcessor& around = state_->parts.post_processor;
  IdBuffer out;
  out.room(text.size() / 3 + 16);
  if (options.add_special_tokens) out.append(around.prefix);
  auto encoder = state_->borrow();
  const Status status = Encoding(state_->parts, state_->raw, state_->normalized, options.added_tokens, *encoder, out).run(text, ranges);
  state_->give_back(std::move(encoder));
  BATON_TRY(status);
  if (options.add_special_tokens) out.append(around.suffix);
  return out.take();
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  bytes.reserve(ids.size() * 4);
  bool first = true;
  for (const int32_t id : ids) {
    if (!has(id) || (skip_special && is_special(id))) continue;
    if (!first) bytes += joiner();
    first = false;
    bytes += this->bytes(id);
  }
  if (valid_utf8(bytes)) return bytes;
  std::string text;
  append_lossy(text, bytes);
  return text;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const { return state_->parts.vocabulary.find(token); }

std::optional<std::string_view> Tokenizer::token(int32_t id) const {
  if (!has(id)) return std::nullopt;
  return state_->parts.vocabulary.token(id);
}

std::string_view Tokenizer::bytes(int32_t id) const { return state_->parts.vocabulary.bytes(id); }
std::string_view Tokenizer::joiner() const { return state_->parts.joiner; }
bool Tokenizer::has(int32_t id) const { return state_->parts.vocabulary.has(id); }
bool Tokenizer::is_special(int32_t id) const { return has(id) && (state_->flags[static_cast<size_t>(id)] & kSpecial) != 0; }
bool Tokenizer::is_added(int32_t id) const { return has(id) && (state_->flags[static_cast<size_t>(id)] & kAdded) != 0; }
size_t Tokenizer::size() const { return state_->parts.vocabulary.size(); }
int32_t Tokenizer::id_limit() const { return state_->parts.vocabulary.id_limit(); }

std::vector<int32_t> Tokenizer::added_ids() const {
  std::vector<int32_t> ids;
  for (const AddedToken& t : state_->parts.added) ids.push_back(t.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

void Tokenizer::use_pattern_only() { state_->parts.pretokenizer.forget_word_rule(); }

}  // namespace baton::text
