#include "text/template/render_state.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace baton::text::jinja {

RenderState::Namespaces::~Namespaces() {
  for (const auto& names : all) names->attributes.clear();
}

Value RenderState::fail(std::string message, Failure::Kind kind) {
  if (!failure_ && !note_limit()) failure_ = Failure{kind, std::move(message), line};
  return Value::undefined("an error");
}

bool RenderState::note_limit() {
  if (!meter_.exceeded()) return failure_.has_value();
  if (!failure_) {
    const Limits& l = meter_.limits();
    failure_ =
        Failure{Failure::Kind::kLimit,
                meter_.bytes_exceeded() ? fmt::format("needs more than the {} bytes of memory that a rendering may use", l.live_bytes)
                                        : fmt::format("needs more than the {} steps that a rendering may take", l.steps),
                line};
  }
  return true;
}

Value RenderState::fail_depth() {
  return fail(fmt::format("values lie inside each other more than {} deep", kMostValueDepth), Failure::Kind::kLimit);
}

bool RenderState::room_for(size_t n) {
  if (failed()) return false;
  if (n > (meter_.limits().live_bytes - meter_.live_bytes()) / sizeof(Value)) meter_.take_bytes(SIZE_MAX);
  return take_items(n);
}

Value RenderState::list(std::vector<Value> items, List::Flavour flavour) {
  auto list = std::make_shared<List>(&meter_);
  list->flavour = flavour;
  list->charge(sizeof(List) + items.capacity() * sizeof(Value));
  for (const Value& v : items) list->hold(v);
  list->items = std::move(items);
  return list->depth > kMostValueDepth ? fail_depth() : Value(std::move(list));
}

Value RenderState::iterator(std::vector<Value> items) {
  auto it = std::make_shared<Iterator>(&meter_);
  it->charge(sizeof(Iterator) + items.capacity() * sizeof(Value));
  for (const Value& v : items) it->hold(v);
  it->items = std::move(items);
  return it->depth > kMostValueDepth ? fail_depth() : Value(std::move(it));
}

Value RenderState::dict(std::shared_ptr<Dict> filled) {
  filled->charge(sizeof(Dict));
  return filled->depth > kMostValueDepth ? fail_depth() : Value(std::move(filled));
}

Value RenderState::new_namespace() {
  namespaces_.all.push_back(std::make_shared<Namespace>(&meter_));
  namespaces_.all.back()->charge(sizeof(Namespace) + 64);
  return namespaces_.all.back();
}

Value RenderState::text(std::string_view bytes, bool untrusted) {
  TextBuilder out(meter_);
  out.append(bytes, untrusted);
  return out.finish();
}

std::optional<std::vector<Value>> RenderState::items_of(const Value& v) {
  std::vector<Value> items;
  switch (v.type()) {
    case Type::kUndefined: return items;
    case Type::kList:
      if (!room_for(v.as_list().items.size())) return {};
      return v.as_list().items;
    case Type::kIterator: {
      Iterator& it = v.as_iterator();
      items.assign(std::make_move_iterator(it.items.begin() + static_cast<ptrdiff_t>(it.next)), std::make_move_iterator(it.items.end()));
      it.next = it.items.size();
      return items;
    }
    case Type::kDict:
      if (!room_for(v.as_dict().entries.size())) return {};
      for (const auto& [key, value] : v.as_dict().entries) items.push_back(key);
      return items;
    case Type::kString: {
      const Text text = v.as_text();
      const std::string_view bytes = text.view();
      if (!room_for(count_chars(bytes))) return {};
      for (size_t at = 0; at < bytes.size();) {
        const size_t n = read_char(bytes.data() + at, bytes.data() + bytes.size()).bytes;
        items.emplace_back(text.part(at, at + n));
        at += n;
      }
      return items;
    }
    default: fail(fmt::format("'{}' object is not iterable", v.is_none() ? "NoneType" : type_name(v))); return {};
  }
}

std::vector<Value> bind_arguments(RenderState& s, std::string_view what, const Arguments& a, std::span<const std::string_view> names,
                                  size_t required) {
  std::vector<Value> bound(names.size());
  if (a.positional.size() > names.size()) {
    s.fail(fmt::format("{}() takes at most {} arguments, {} are given", what, names.size(), a.positional.size()));
    return bound;
  }
  std::copy(a.positional.begin(), a.positional.end(), bound.begin());
  for (const auto& [name, value] : a.named) {
    const auto at = std::find(names.begin(), names.end(), name.text);
    if (at == names.end()) {
      s.fail(fmt::format("{}() has no argument '{}'", what, name.text));
      return bound;
    }
    Value& slot = bound[static_cast<size_t>(at - names.begin())];
    if (!slot.is_missing()) s.fail(fmt::format("{}() got two values for the argument '{}'", what, name.text));
    slot = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (bound[i].is_missing()) s.fail(fmt::format("{}() needs the argument '{}'", what, names[i]));
  return bound;
}

}  // namespace baton::text::jinja
